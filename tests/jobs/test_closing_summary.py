"""The end of a run: whether it fails although all of its jobs are done, and what it says."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from scalecard.jobs import plan
from scalecard.records.record import Reason, Record
from support.builders import timed

MEASURED = timed([1.0])
TOO_LARGE = Record.failed({"devices": 2}, "2 GiB", reason=Reason.OUT_OF_MEMORY)
UNPROVEN = Record.failed({"devices": 2}, "differs by 1", reason=Reason.NOT_PROVEN)


@pytest.mark.parametrize(
    ("records", "fails"),
    [([MEASURED], False), ([MEASURED, TOO_LARGE], False), ([MEASURED, UNPROVEN], True)],
    ids=["measured", "out of memory", "not proven"],
)
def test_a_run_fails_for_what_should_not_have_failed(
    save_result: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    records: list[Record],
    fails: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = save_result("box", *records)
    assert plan.closing_summary([result], tmp_path / "report.html", None)[1] == fails


def test_a_run_fails_if_a_part_of_the_report_could_not_be_made(
    save_result: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report, left_out = tmp_path / "report.html", tmp_path / "left_out.json"
    report.write_text("")
    left_out.write_text(json.dumps(["the figure of ddp: the reason"]))
    said, fails = plan.closing_summary([save_result("box", MEASURED)], report, None, left_out)
    assert fails
    assert "Failed: the figure of ddp: the reason" in said
