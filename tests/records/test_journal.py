"""KeptGroups of records that were measured before a run was ended, for the next one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from scalecard.records import journal
from scalecard.records.journal import KeptGroups
from scalecard.records.record import Reason, Record
from support.builders import timed

EARLIER, LATER = "2026-01-01T00:00:00.000+00:00", "2026-01-02T00:00:00.000+00:00"
LATE = Record.skipped({"size": 2}, "the budget is used up", reason=Reason.NO_TIME)
LOST = Record.failed({"size": 2}, "rank 1 was killed", reason=Reason.LOST)
FULL = Record.failed({"size": 2}, "2 GiB are too many", reason=Reason.OUT_OF_MEMORY)


def never() -> Iterator[Record]:
    raise AssertionError("measured again")
    yield


def test_a_group_is_measured_once_and_each_record_knows_its_run(tmp_path: Path) -> None:
    path = tmp_path / "process 1.jsonl"
    ours = timed([1.0, 2.0], size=1)
    (before,) = KeptGroups(path, EARLIER).measured_once(["copy", 1], [ours])
    later = KeptGroups(path, LATER)
    (after,) = later.measured_once(["copy", 1], never())
    assert before == after
    assert (after.samples, after.runs) == ([[1.0, 2.0]], [EARLIER])
    (fresh,) = later.measured_once(["copy", 2], [timed([3.0], size=2)])
    assert fresh.runs == [LATER]


@pytest.mark.parametrize(("record", "again"), [(LATE, True), (LOST, True), (FULL, False)])
def test_what_failed_or_had_no_time_is_measured_again_and_too_little_memory_is_an_answer(
    record: Record, again: bool, tmp_path: Path
) -> None:
    path, new = tmp_path / "groups", timed([2.0], size=2)
    assert len([*KeptGroups(path, EARLIER).measured_once("one", [timed([1.0], size=1), record])]) == 2
    found = [*KeptGroups(path, LATER).measured_once("one", [new])]
    assert (found[0].samples == new.samples) == again


def test_a_group_that_was_not_measured_to_its_end_is_measured_again(tmp_path: Path) -> None:
    begun = KeptGroups(tmp_path / "groups", EARLIER).measured_once("one", [timed([1.0], size=1), timed([1.0], size=2)])
    next(begun)
    del begun
    assert len([*KeptGroups(tmp_path / "groups", LATER).measured_once("one", [timed([2.0], size=1)])]) == 1


def test_a_group_within_another_is_a_part_of_it_and_the_same_name_is_another_group(tmp_path: Path) -> None:
    first = KeptGroups(tmp_path / "groups", EARLIER)
    assert len([*first.measured_once("outer", first.measured_once("inner", [timed([1.0], size=1)]))]) == 1
    assert len([*first.measured_once("outer", [timed([2.0], size=2)])]) == 1
    later = KeptGroups(tmp_path / "groups", LATER)
    found = [[*later.measured_once("outer", never())] for _ in range(2)]
    assert [[record.samples for record in records] for records in found] == [[[[1.0]]], [[[2.0]]]]
    with pytest.raises(AssertionError, match="measured again"):
        list(later.measured_once("inner", never()))


def test_a_line_that_a_kill_cut_short_costs_its_own_group_alone(tmp_path: Path) -> None:
    path = tmp_path / "groups"
    first = KeptGroups(path, EARLIER)
    for name in ("one", "two"):
        list(first.measured_once(name, [timed([1.0], size=1)]))
    path.write_text(path.read_text()[:-30])
    second = KeptGroups(path, LATER)
    list(second.measured_once("one", never()))
    list(second.measured_once("two", [timed([2.0], size=1)]))
    third = KeptGroups(path, LATER)
    assert [record.samples for name in ("one", "two") for record in third.measured_once(name, never())] == [
        [[1.0]],
        [[2.0]],
    ]


def test_nothing_is_kept_of_what_was_measured_under_other_conditions(tmp_path: Path) -> None:
    folder = tmp_path / "box" / "unfinished" / "ddp"
    assert journal.prepare_folder(folder, {"code": "a"})
    (folder / "process 1.jsonl").write_text("kept")
    assert journal.prepare_folder(folder, {"code": "a"})
    assert (folder / "process 1.jsonl").exists()
    assert journal.prepare_folder(folder, {"code": "b"})
    assert not (folder / "process 1.jsonl").exists()
    journal.remove_folder(folder)
    assert not folder.parent.exists()
    (tmp_path / "box" / "unfinished").touch()
    assert not journal.prepare_folder(folder, {"code": "a"}), "the result itself says what is wrong with the disk"


def test_what_disturbed_a_run_is_remembered_for_those_of_its_groups_that_are_kept(tmp_path: Path) -> None:
    journal.remember_disturbances(tmp_path, EARLIER, ["GPU 0 is busy"])
    path = tmp_path / journal.DISTURBANCES
    path.write_text(path.read_text() + '\n{"began": "cut sh')
    journal.remember_disturbances(tmp_path, LATER, ["GPU 1 is busy", "the CPU is busy"])
    assert list(journal.disturbances_of(tmp_path, {EARLIER})) == [f"run of {EARLIER}: GPU 0 is busy"]
    assert len(list(journal.disturbances_of(tmp_path, {EARLIER, LATER}))) == 3
    assert list(journal.disturbances_of(tmp_path / "none", {EARLIER})) == []
    journal.remember_disturbances(tmp_path / "none", LATER, [])


def test_a_full_disk_ends_no_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = KeptGroups(tmp_path / "no folder" / "groups", EARLIER)
    assert len([*kept.measured_once("one", [timed([1.0], size=1)])]) == 1
    assert "what was measured is not kept until the end" in capsys.readouterr().out
