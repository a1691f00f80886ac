"""Records of several processes, made one."""

from collections.abc import Callable

import pytest
from scalecard.merge import merged
from scalecard.schema import Record, Result
from scalecard.sections import words


def curve(*accuracies: float) -> Record:
    return Record(case={"devices": 1}, metric="accuracy", unit="fraction", samples=list(accuracies))


def test_a_curve_keeps_its_epochs_in_every_process(make_result: Callable[..., Result]) -> None:
    (record,) = merged([[curve(0.1, 0.5)], [curve(0.2, 0.7)], [curve(0.1, 0.6)]])
    assert record.processes == [[0.1, 0.5], [0.2, 0.7], [0.1, 0.6]]
    assert words.final(record) == 0.6
    assert list(words.frame([make_result([record])], "accuracy")["index"]) == [0, 1] * 3


def test_what_one_process_lost_is_said_and_the_others_kept() -> None:
    timed = Record(case={"n": 1}, metric="time", unit="s", samples=[1.0, 2.0], telemetry=[{"rounds_id": "a"}])
    lost = Record(case={"n": 1}, metric="time", unit="s", status="failed", note="out of memory")
    (record,) = merged([[lost], [timed]])
    assert (record.status, record.samples) == ("ok", [1.0, 2.0])
    assert record.note == "process 1: out of memory"
    assert record.telemetry == [{"count": 2, "rounds_id": "a"}]
    (nothing,) = merged([[lost], [lost]])
    assert nothing.status == "failed"


def test_uncertainty_within_and_between_processes() -> None:
    quiet = [1.0 + 0.001 * (i % 5) for i in range(30)]
    slower = [1.1 * sample for sample in quiet]
    records = [[Record(case={}, metric="time", unit="s", samples=samples)] for samples in (quiet, slower, quiet)]
    (record,) = merged(records)
    assert record.within
    assert record.between
    assert record.within.half_width < 0.005
    assert record.between.half_width > 0.05
    assert record.interval == record.between
    assert record.median == pytest.approx(1.002)
