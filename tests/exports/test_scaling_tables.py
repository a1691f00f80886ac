"""The exported tables and figure: their numbers, their formats, and what is escaped in them."""

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from scalecard.analysis.provenance import METHOD, provenance
from scalecard.exports import scaling
from scalecard.records import files
from scalecard.records.record import Record, Result
from scalecard.report import answers, render, table
from scalecard.report.answers import use
from scalecard.report.figure_files import draw
from scalecard.report.pages import MISSING
from support.eight_gpus import OUT_OF_MEMORY, ddp, measured, step, strategies, too_large

Make = Callable[..., Result]
NASTY = '50% of $x_1 & {y} #2 ~^\\ <b>|`*[z]` "q"\nnew line'


def gpt(make_result: Make, *records: Record) -> Result:
    result = measured(make_result, strategies=records or strategies()).of("strategies")
    assert result is not None
    return result


@pytest.fixture
def saved(make_result: Make, tmp_path: Path) -> Path:
    """A result file, of CPU workers as this machine's are."""
    result = gpt(make_result, *(record for record in strategies() if record.metric == "step_time"))
    path = tmp_path / "results" / result.platform / "strategies.json"
    files.save(replace(result, environment={**result.environment, "emulated": True}), path)
    return path


def csv_table(result: Result) -> pd.DataFrame:
    written = scaling.as_csv(scaling.of_result(result), [result])
    return pd.read_csv(io.BytesIO(written), comment="#", keep_default_na=False, na_values=[""])


def row(result: Result, strategy: str, devices: int, kind: str) -> dict[str, object]:
    found = csv_table(result)
    (one,) = found[
        (found.strategy == strategy) & (found.devices == devices) & (found.scaling.fillna("") == kind)
    ].to_dict("records")
    return dict(one)


def test_strong_scaling_by_hand(make_result: Make) -> None:
    """29.25 ms instead of 100 ms, on 8 devices."""
    found = row(gpt(make_result), "DDP", 8, "strong")
    assert found["step_ms"] == pytest.approx(29.25, rel=0.005)
    assert found["step_ms_low"] < found["step_ms"] < found["step_ms_high"]  # type: ignore[operator]
    assert found["per_second"] == pytest.approx(64 / 0.02925, rel=0.005)
    assert found["speed_up"] == pytest.approx(100 / 29.25, rel=0.005)
    assert found["efficiency"] == pytest.approx(100 / 29.25 / 8, rel=0.005)
    assert (found["batch_size"], found["nodes"], found["num_samples"], found["status"]) == (64, 1, 60, "fits")


def test_weak_scaling_by_hand(make_result: Make) -> None:
    """Eight times the samples in 108 ms instead of 100."""
    found = row(gpt(make_result), "DDP", 8, "weak")
    assert found["speed_up"] == pytest.approx(8 * 100 / 108, rel=0.005)
    assert found["efficiency"] == pytest.approx(100 / 108, rel=0.005)
    assert found["batch_size"] == 512


def test_ddp_of_the_textbooks_models_is_over_one_device_without_ddp(make_result: Make) -> None:
    result = measured(make_result, ddp=ddp({"default": (1, 0.02)})).of("ddp")
    assert result is not None
    found = csv_table(result)
    assert list(found.workload.unique()) == ["resnet18 (ddp)"]
    assert list(found.strategy) == ["single device", "DDP", "DDP", "DDP"], "options and ways to train are no scaling"
    assert found.speed_up[2] == pytest.approx(0.1 / 0.02, rel=0.005)
    assert found.efficiency[3] == pytest.approx(0.1 / 0.11, rel=0.005)


def test_what_was_not_measured_stays_with_its_reason(make_result: Make) -> None:
    result = gpt(make_result, step("single device", 1, 0.1), too_large("DDP", 2))
    found = row(result, "DDP", 2, "strong")
    assert found["status"] == "does not fit"
    assert found["note"] == f"out of memory: {OUT_OF_MEMORY}"
    rows = scaling.of_result(result)
    for written in (scaling.as_markdown(rows, [result]), scaling.as_latex(rows, [result])):
        assert b"Not measured: gpt by DDP on 2: does not fit" in written


def test_a_platform_without_any_measured_case_still_has_its_tables(make_result: Make) -> None:
    result = gpt(make_result, too_large("DDP", 2))
    for write in scaling.FORMATS.values():
        assert write(scaling.of_result(result), [result])


def test_the_figure_has_a_panel_for_each_workload_also_of_the_textbooks_models(make_result: Make) -> None:
    both = measured(make_result, strategies=strategies(), ddp=ddp({"default": (1, 0.02)}))
    results = list(both.results.values())
    rows = [row for result in results for row in scaling.of_result(result) if row.fits]
    drawn = use.rates(rows, results[0])
    assert [" ".join(axes.get_title(loc="left").split()) for axes in drawn.axes] == [
        "gpt, plain SGD in float32",
        "resnet18 (ddp), plain SGD in float32",
    ]
    plt.close(drawn)


@pytest.mark.parametrize("write", [scaling.as_csv, scaling.as_markdown, scaling.as_latex])
def test_method_and_provenance_are_in_every_text(make_result: Make, write: Callable[..., bytes]) -> None:
    result = gpt(make_result)
    text = write(scaling.of_result(result), [result]).decode().replace("\\", "")
    assert METHOD in text
    assert provenance([result]).replace("\\", "") in text


def test_provenance_names_machine_driver_software_image_code_and_days(make_result: Make) -> None:
    first = gpt(make_result)
    machine = {
        **first.environment["machine"],
        "kind": "cuda",
        "gpus": ["NVIDIA H100 80GB HBM3"] * 8,
        "driver": "580.65",
        "cpu": "AMD EPYC 9654",
        "cores": 96,
    }
    facts = {
        "machine": machine,
        "torch": "2.15.0",
        "container": f"sha256:{'a1' * 32}",
        "commit": "c" * 40,
        "dirty": True,
    }
    first = replace(first, environment={**first.environment, **facts})
    second = replace(first, finished="2026-01-02T00:00:00.000+00:00", environment={**first.environment, "dirty": False})
    assert provenance([first, second]) == (
        "Measured by ScaleCard on 8 x NVIDIA H100 80GB HBM3, driver 580.65; AMD EPYC 9654, 96 cores; PyTorch 2.15.0;"
        " container sha256:a1a1a1a1a1a1; commit cccccccccccc, cccccccccccc+changes; 2026-01-01 to 2026-01-02."
    )
    emulated = replace(first, environment={**first.environment, "emulated": True})
    assert provenance([emulated]).endswith("the numbers say nothing about GPUs.")


def test_latex_is_escaped() -> None:
    assert table.latex(NASTY) == (
        r"50\% of \$x\_1 \& \{y\} \#2 \textasciitilde{}\textasciicircum{}\textbackslash{} \textless{}b\textgreater{}"
        r"\textbar{}`*[z]` \textquotedbl{}q\textquotedbl{} new line"
    )


def test_markdown_is_escaped_and_keeps_to_its_cell() -> None:
    made = table.as_markdown(["name"], [[NASTY]], left=1)
    assert len(made.splitlines()) == 3
    assert made.replace("\\|", "").count("|") == 6, "the table's own, two per line"
    assert r"\<b\>" in made
    assert r"\`\*\[z\]\`" in made


def test_names_of_users_reach_csv_as_they_are_on_one_line(make_result: Make) -> None:
    odd = step("single device", 1, 0.1)
    odd = replace(odd, case={**odd.case, "workload": 'a,"b" #c'})
    assert list(csv_table(gpt(make_result, odd)).workload) == ['a,"b" #c']
    written = table.as_csv([{"name": NASTY, "number": 0.1 + 0.2}], [NASTY])
    comment, head, own = written.splitlines()
    assert comment.startswith("# 50% of")
    assert next(csv.reader([own])) == [" ".join(NASTY.split()), "0.3"]
    assert head == "name,number"


def test_latex_has_rules_of_booktabs_and_as_many_cells_in_every_row(make_result: Make) -> None:
    result = gpt(make_result)
    text = scaling.as_latex(scaling.of_result(result), [result]).decode()
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 2
    for rule in ("toprule", "midrule", "bottomrule"):
        assert text.count(f"\\{rule}") == 2
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.count(" & ") for line in rows} == {len(scaling.HEAD) - 1}


def test_what_cannot_be_exported_is_named_and_its_files_say_so(
    scalecard: Callable[..., Any], saved: Path, tmp_path: Path
) -> None:
    out = tmp_path / "exports"
    assert scalecard("export", "--results", saved, "--output", out).status == 0
    assert (out / "scaling.csv").exists()
    result = files.load(saved)
    bare = {"workload": "gpt", "strategy": "DDP", "devices": 2, "scaling": "strong"}
    files.save(replace(result, records=[replace(result.records[1], case=bare)]), saved)
    done = scalecard("export", "--results", saved, "--output", out)
    assert done.status == 0
    assert any(line.startswith("left out: export scaling: box/strategies.json") for line in done.err.splitlines())
    assert (out / "scaling.csv").read_bytes() == (out / "scaling.pdf").read_bytes() == MISSING
    assert (out / "results.csv").read_bytes() != MISSING


def test_the_report_names_the_files_beside_it_and_links_none(saved: Path, tmp_path: Path) -> None:
    results, figures = tmp_path / "results", tmp_path / "results" / "figures"
    for name in ("strategies", *answers.names()):
        draw(name, [saved], [figures / f"{name}.html"])
    tables = [results / "exports" / "a platform" / f"scaling{suffix}" for suffix in (".csv", ".pdf", ".tex")]
    tables[0].parent.mkdir(parents=True)
    for file, content in zip(tables, (b"", b"", MISSING), strict=True):
        file.write_bytes(content)
    (missing,) = render.write([saved], figures, results / "report.html", exports=tables)
    assert (missing.what, missing.ours) == ("scaling.tex", True)
    text = (results / "report.html").read_text()
    assert "<code>results/exports/a platform/</code>: 2 files<" in text
    assert "<p>scaling.csv, scaling.pdf</p>" in text
    assert 'href="exports' not in text
    assert "report.zip" not in text, "no archive was asked for"
    render.write([saved], figures, results / "report.html")
    assert "results/exports" not in (results / "report.html").read_text()
