"""The closing block on the terminal."""

from collections.abc import Callable
from pathlib import Path

import pytest
from scalecard.jobs import plan
from scalecard.records.record import Reason, Record, Result
from scalecard.report.section import Section

Make = Callable[..., Result]


SCRATCH = {"experiment": "dp_scratch", "spec": {"train_images": 64, "batch_size": 8}}


def epochs(seconds: float, devices: int) -> Record:
    return Record(case={"devices": devices}, metric="epoch_time", unit="s", samples=[[seconds] * 6])


def test_it_counts_cases_and_warnings_and_leads_with_findings(make_result: Make) -> None:
    records = [epochs(2.0, 1), epochs(1.0, 2), Record.skipped({"devices": 4}, "needs 4 devices", metric="epoch_time")]
    result = make_result(records, **SCRATCH, warnings=["the CPU was busy"])
    text = plan.success([result], Path("results/report.html"), 432)
    assert "7 min 12 s" in text
    assert "Now on box: 1 experiment, 2 cases measured, 1 skipped, 0 failed, 1 warning." in text
    assert "the CPU was busy (dp_scratch)" in text
    assert "2.00x" in text
    assert text.splitlines()[-1] == "Report: results/report.html"


def test_it_does_not_name_a_report_that_was_not_written(make_result: Make) -> None:
    assert "report.html" not in plan.success([make_result([epochs(1.0, 1)], **SCRATCH)], None, 1)


def test_it_says_where_the_time_went_and_what_had_none(make_result: Make) -> None:
    """One minute of measuring; a third of all cases had no time, so that all of them take a minute and a half."""
    late = Record.skipped({"devices": 4}, "left out", reason=Reason.NO_TIME, metric="epoch_time")
    spent = {"timed": 30.0, "proof": 15.0, "launch": 0.1}
    result = make_result([epochs(2.0, 1), epochs(1.0, 2), late], **SCRATCH, spent=spent)
    text = plan.success([result], None, 60, {"dp_scratch": 45})
    assert "Time: 50 % of measuring was timed samples; 25 % proofs." in text
    assert "Left out for lack of time: 1 case of dp_scratch (all of it takes about 2 min)." in text
    assert "Left out for lack of time: 1 case of dp_scratch" in Section.of(result).scale_notes[0]
    assert "Time:" not in plan.success([result], None, 60, {}), "it was not measured in this run"


def test_what_was_measured_is_compared_with_what_was_expected(make_result: Make) -> None:
    text = plan.success([make_result([epochs(1.0, 1)], **SCRATCH)], None, 1, {"dp_scratch": 45, "ddp": 7})
    assert "dp_scratch 1 min 0 s (45 s)." in text
    assert "ddp" not in text.replace("dp_scratch", "")


def test_a_failure_ends_with_the_end_of_each_log(tmp_path: Path) -> None:
    log = tmp_path / "ddp.log"
    log.write_text("\n".join(f"line {number}" for number in range(50)) + "\nValueError: the reason")
    text = plan.failure([log, tmp_path / "missing.log"], 3)
    assert str(log) in text
    assert "ValueError: the reason" in text
    assert "line 10" not in text
    assert str(tmp_path / "missing.log") in text


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (61, "1 min 1 s")])
def test_duration(seconds: float, text: str) -> None:
    assert plan.duration(seconds) == text
