"""Failed cases are measured once more, and not for ever; so are those that a smaller budget had left out."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from scalecard.jobs import plan
from scalecard.measuring.stopping_rule import LEFT_OUT
from scalecard.records import files
from scalecard.records.files import save
from scalecard.records.record import Reason, Record, Result
from support.builders import timed

LOST = Record.failed({"devices": 2, "bytes": 4096}, "rank 1 was killed", reason=Reason.LOST)
SKIPPED = Record.skipped({"devices": 8}, "needs 8")


@pytest.mark.parametrize(
    ("records", "due"), [([timed([1.0]), LOST], True), ([timed([1.0]), SKIPPED], False), ([timed([1.0])], False)]
)
def test_a_result_with_failed_cases_is_due_and_one_with_skipped_ones_is_not(
    save_result: Callable[..., Path], records: list[Record], due: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = save_result("box", *records)
    assert bool(files.is_due(path, 0)) == due
    assert list(plan.to_repeat([path], {})) == ["async_timing"] * due
    mark = plan.mark_of(path)
    assert bool(mark.read_text()) == due
    assert (mark.stat().st_mtime > path.stat().st_mtime) == due
    before = mark.stat().st_mtime_ns
    assert list(plan.to_repeat([path], {})) == ["async_timing"] * due
    assert mark.stat().st_mtime_ns == before, "the same result changes it once"


def test_what_fails_a_second_time_is_marked_and_left_alone(
    save_result: Callable[..., Path], make_result: Callable[..., Result]
) -> None:
    path = save_result("box", LOST)
    assert not files.failed_again([timed([1.0])], path), "all is well now"
    assert files.failed_again([LOST], path)
    save(make_result([LOST], failed_again=True), path)
    assert not files.is_due(path, 0)


@pytest.mark.parametrize(
    ("had", "has", "due"), [(60, 61, True), (60, 0, True), (60, 60, False), (60, 30, False), (0, 60, False)]
)
def test_what_a_budget_left_out_is_due_once_there_is_more(
    make_result: Callable[..., Result], tmp_path: Path, had: int, has: int, due: bool
) -> None:
    late = Record.skipped({"devices": 2}, LEFT_OUT, reason=Reason.NO_TIME)
    path = tmp_path / "async_timing.json"
    save(replace(make_result([timed([1.0]), late]), budget_seconds=had), path)
    assert bool(files.is_due(path, has)) == due
    save(replace(make_result([timed([1.0]), SKIPPED]), budget_seconds=had), path)
    assert not files.is_due(path, has), "what this machine cannot run needs no time"


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"records": 3}'])
def test_what_cannot_be_read_is_not_due(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_text(content)
    assert not files.is_due(path, 0)


def test_the_closing_line_names_every_lost_case_and_who_is_measured_again(
    make_result: Callable[..., Result], capsys: pytest.CaptureFixture[str], save_result: Callable[..., Path]
) -> None:
    other = Record.failed({"workload": "lenet"}, "2 GiB", reason=Reason.OUT_OF_MEMORY, metric="step_time")
    results = [
        make_result([timed([1.0]), LOST]),
        make_result([other], experiment="ddp", failed_again=True),
    ]
    assert plan.lost_cases(results) == (
        "Failed: 2 cases: async_timing devices 2, bytes 4096, time (rank 1 was killed);"
        " ddp workload lenet, step_time (out of memory: 2 GiB). The next run measures async_timing once more."
    )
    assert plan.lost_cases([make_result([timed([1.0]), SKIPPED])]) == ""
    plan.announce_repeats(plan.to_repeat([save_result("box", LOST)], {}))
    assert "async_timing: 1 case failed last time" in capsys.readouterr().out
