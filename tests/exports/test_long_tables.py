"""The two tables: a row per case in the CSV, a row per sample in the Parquet file, and the lines that docs give."""

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from scalecard.exports import long_tables
from scalecard.records.record import Record, Result
from support.exported import files, results
from support.projects import ROOT

DOCS = (ROOT / "docs" / "results.md").read_text()


def cases() -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(files()["results.csv"]))


def samples() -> pd.DataFrame:
    return pd.read_parquet(io.BytesIO(files()["results.parquet"]))


def test_the_csv_has_each_case_once_also_what_was_not_measured() -> None:
    records = [record for result in results() for record in result.records]
    found = cases()
    assert len(found) == len(records)
    assert list(found.status) == [record.status for record in records]
    (lost,) = found[found.status == "failed"].to_dict("records")
    assert (lost["devices"], lost["num_samples"]) == (64, 0)
    assert (lost["reason"], lost["note"]) == ("out of memory", "CUDA out of memory, 50% of #1")
    assert pd.isna(lost["value"])


def test_a_case_has_its_median_and_interval_in_si_units() -> None:
    (result,) = [result for result in results() if result.experiment == "allreduce"]
    record = result.records[0]
    assert record.interval
    row = cases().query("experiment == 'allreduce'").iloc[0]
    bounds = [record.median, record.interval.low, record.interval.high]
    assert list(row[["value", "low", "high"]]) == pytest.approx(bounds, rel=1e-5)
    assert list(row[["value_unit", "num_samples", "num_processes"]]) == ["s", 14, 2]
    assert list(row[["platform", "fingerprint", "algorithm"]]) == [
        "box8",
        result.environment["fingerprint"],
        record.case["algorithm"],
    ]


def test_an_accuracy_is_that_of_the_last_epoch_and_has_no_interval() -> None:
    found = cases().query("metric == 'accuracy'")
    assert set(found.value) == {0.8}
    assert found.low.isna().all()


def test_the_parquet_file_has_every_sample_as_it_was_measured() -> None:
    taken = [value for result in results() for record in result.records for own in record.samples for value in own]
    found = samples()
    assert list(found.value) == taken
    medians = (
        found[found.experiment == "copy_cost"].groupby(["bytes", "source", "target", "memory", "call", "metric"]).value
    )
    assert medians.count().eq(14).all()


def test_samples_of_the_same_round_can_be_paired() -> None:
    """Two processes of seven rounds, which all cases of an experiment share."""
    found = samples().query("experiment == 'tensor_parallel' and metric == 'step_time'")
    assert set(found.rounds_id) == {"process 0", "process 1"}
    assert (found.rounds_id == "process " + found.process.astype(str)).all()
    assert sorted(set(found["sample"])) == list(range(7))


def test_columns_have_one_type_each_also_where_cases_lack_the_axis() -> None:
    types = samples().dtypes.astype(str)
    assert (types["devices"], types["lr"], types["persistent"], types["value"]) == (
        "Int64",
        "Float64",
        "boolean",
        "float64",
    )
    assert types["algorithm"] in ("str", "string")
    assert list(cases().columns[:7]) == list(samples().columns[:7]) == list(long_tables.IDENTITY)


def test_an_axis_of_numbers_here_and_names_there_is_text(make_result: Callable[..., Result]) -> None:
    records = [Record(case={"share": share}, metric="time", unit="s", samples=[[1.0]]) for share in (2, "all", None)]
    assert list(long_tables.samples([make_result(records)]).share.fillna("")) == ["2", "all", ""]


def test_an_axis_with_the_name_of_a_column_is_refused(make_result: Callable[..., Result]) -> None:
    record = Record(case={"status": "x"}, metric="time", unit="s", samples=[[1.0]])
    with pytest.raises(AssertionError, match="axes named like columns: status"):
        long_tables.as_csv([make_result([record])])


def test_results_without_any_sample_still_have_both_tables(make_result: Callable[..., Result]) -> None:
    result = make_result([Record.skipped({"devices": 2}, "needs 2 devices")])
    assert len(pd.read_csv(io.BytesIO(long_tables.as_csv([result])))) == 1
    assert len(pd.read_parquet(io.BytesIO(long_tables.as_parquet([result])))) == 0


def test_names_of_users_reach_both_tables(make_result: Callable[..., Result]) -> None:
    record = Record(case={"workload": 'a,"b" #c\n=d'}, metric="time", unit="s", samples=[[1.0]])
    result = replace(make_result([record]), platform="box")
    assert list(pd.read_csv(io.BytesIO(long_tables.as_csv([result]))).workload) == ['a,"b" #c =d']
    assert list(long_tables.samples([result]).workload) == ['a,"b" #c\n=d']


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL))
def test_the_lines_of_the_docs_read_the_files(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "results" / "exports" / "h100x8-3fa9c1"
    folder.mkdir(parents=True)
    for name in ("results.csv", "results.parquet", "scaling.csv"):
        content = files()[name].replace(b",strong,", b",weak,") if name == "scaling.csv" else files()[name]
        (folder / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    printed = capsys.readouterr().out
    assert "torch.distributed" in printed or "our gpipe" in printed, "a column of either table"


def test_the_docs_have_lines_for_both_tables() -> None:
    code = "".join(re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL))
    assert "results.csv" in code
    assert "results.parquet" in code
