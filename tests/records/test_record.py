"""What a record and a result compute from what they hold."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from scalecard.records.record import Check, Reason, Record, Result
from support.builders import timed

DRIFT = [1 + 0.02 * i for i in range(30)]


def test_samples_of_the_same_rounds_are_paired_and_others_are_not() -> None:
    old, slower = timed(DRIFT), [1.03 * sample for sample in DRIFT]
    assert timed(slower).over(old).verdict == "slower"
    assert timed(slower, rounds_id="other").over(old).verdict == "unclear"


def test_records_without_telemetry_are_not_paired() -> None:
    one, two = (Record(case={}, metric="peak_memory", unit="B", samples=[[size]]) for size in (1.0, 2.0))
    assert two.over(one).value == 2
    assert two.over(one).interval is None


@pytest.mark.parametrize(("difference", "passed"), [(0.0, True), (1e-10, True), (1e-9, False), (float("nan"), False)])
def test_a_check_passes_up_to_its_tolerance(difference: float, passed: bool) -> None:
    assert Check(name="sum", dtype="float64", difference=difference, tolerance=1e-10).passed == passed


def test_an_absent_axis_counts_as_none(make_result: Callable[..., Result]) -> None:
    within, over = timed([1.0], devices=2), timed([1.0], devices=2, nodes=2)
    result = make_result([over, within, Record.skipped({"devices": 4}, "needs 4 devices")])
    assert result.select("time", devices=2, nodes=None) == [within]
    assert result.find("time", devices=4) is None
    assert [result.count(status) for status in ("ok", "skipped", "failed")] == [2, 1, 0]


def test_the_median_is_that_of_the_processes_medians() -> None:
    assert timed([1.0, 1.0, 9.0], [5.0, 5.0, 0.0], [7.0]).median == 5


@pytest.mark.parametrize("emulated", [True, False])
def test_a_result_says_whether_cpu_workers_stood_in_for_gpus(
    make_result: Callable[..., Result], emulated: bool
) -> None:
    result = make_result([timed([1.0])])
    assert replace(result, environment={**result.environment, "emulated": emulated}).emulated == emulated


def test_text_on_an_axis_is_text_or_refused() -> None:
    record = Record(case={"dtype": "float32", "devices": 2, "scaling": None}, metric="time", unit="s")
    assert record.text("dtype") == "float32"
    assert record.text("scaling", "strong") == record.text("absent", "strong") == "strong"
    for axis in ("devices", "absent"):
        with pytest.raises(TypeError, match=f"{axis} = .*: must be text"):
            record.text(axis)


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        (Reason.OUT_OF_MEMORY, "out of memory: 2 GiB"),
        (Reason.NOT_PROVEN, "not proven: 2 GiB"),
        (Reason.DEVICE_FAULT, "device fault: 2 GiB"),
        (Reason.LOST, "2 GiB"),
    ],
)
def test_a_reason_is_said_before_a_note_that_does_not_say_it(reason: Reason, why: str) -> None:
    assert Record.failed({}, "2 GiB", reason=reason).why == why
    assert Record(case={}, metric="time", unit="s", samples=[[1.0]], note="2 GiB").why == "2 GiB"
