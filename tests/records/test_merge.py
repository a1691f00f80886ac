"""The records of several processes, made one."""

import pytest
from scalecard.records.journal import merged
from scalecard.records.record import Reason, Record
from support.builders import timed


def test_what_failed_twice_says_both() -> None:
    one, other = (
        Record.failed({"n": 1}, note, reason=Reason.LOST) for note in ("rank 3 was killed", "rank 0 was killed")
    )
    (both,) = merged([[one, other]])
    assert both.note == "rank 3 was killed; rank 0 was killed"
    large = Record.failed({"n": 1}, "2 GiB", reason=Reason.OUT_OF_MEMORY)
    (mixed,) = merged([[one, large]])
    assert (mixed.reason, mixed.note) == (Reason.LOST, "rank 3 was killed; out of memory: 2 GiB")


def curve(*accuracies: float) -> Record:
    return Record(case={"devices": 1}, metric="accuracy", unit="fraction", samples=[list(accuracies)])


def test_a_curve_keeps_its_epochs_in_every_process() -> None:
    (record,) = merged([[curve(0.1, 0.5)], [curve(0.2, 0.7)], [curve(0.1, 0.6)]])
    assert record.samples == [[0.1, 0.5], [0.2, 0.7], [0.1, 0.6]]
    assert record.num_samples == 6


def test_what_one_process_lost_is_noted_and_the_others_are_kept() -> None:
    kept, lost = timed([1.0, 2.0], n=1), Record.failed({"n": 1}, "2 GiB", reason=Reason.OUT_OF_MEMORY)
    (record,) = merged([[lost], [kept]])
    assert (record.status, record.samples, record.telemetry) == ("ok", kept.samples, kept.telemetry)
    assert record.note == "process 1: out of memory: 2 GiB"
    (nothing,) = merged([[lost], [lost]])
    assert nothing == lost


def test_cases_keep_the_order_of_the_first_process_that_has_them() -> None:
    records = merged([[timed([1.0], n=1), timed([1.0], n=3)], [timed([1.0], n=2), timed([1.0], n=1)]])
    assert [record.case["n"] for record in records] == [1, 3, 2]


def test_uncertainty_within_and_between_processes() -> None:
    quiet = [1.0 + 0.001 * (i % 5) for i in range(30)]
    slower = [1.1 * sample for sample in quiet]
    (record,) = merged([[timed(samples)] for samples in (quiet, slower, quiet)])
    assert record.within
    assert record.between
    assert record.within.half_width < 0.005
    assert record.between.half_width > 0.05
    assert record.interval == record.between
    assert record.median == pytest.approx(1.002)


def test_the_telemetry_of_every_process_is_kept() -> None:
    (record,) = merged([[timed([1.0], rounds_id="first")], [timed([1.0], rounds_id="second")]])
    assert [entry.rounds_id for entry in record.telemetry] == ["first 0", "second 0"]


def test_times_and_bytes_of_one_case_stay_apart() -> None:
    memory = Record(case={"n": 1}, metric="peak_memory", unit="B", samples=[[1e9]])
    assert merged([[timed([1.0], n=1), memory], [timed([2.0], n=1), memory]])[0].samples == [[1.0], [2.0]]
