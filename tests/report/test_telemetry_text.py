"""What the telemetry says of the hardware: beside a number, and over a whole experiment."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from scalecard.records.record import HardwareState, Record, Result, Telemetry
from scalecard.report.record_table import energy_text as energy
from scalecard.report.record_table import telemetry_overview as overview
from scalecard.report.record_table import telemetry_remarks as remarks
from scalecard.report.sections import allreduce
from support.builders import gpu_state, hardware_state, timed

ALGORITHMS = ("naive", "ring")


def record(*states: HardwareState, **changes: object) -> Record:
    """A record with these states, one per process."""
    entries = [Telemetry(rounds_id=str(n), state=state, **changes) for n, state in enumerate(states)]
    return replace(timed(*[[1.0]] * len(states)), telemetry=entries)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (hardware_state(gpu_state(), gpu_state(reasons={"power cap": 0.25})), ["GPU 1", "power cap", "25 %"]),
        (hardware_state(gpu_state(others_memory_bytes=2 * 2**30)), ["GPU 0", "2 GiB"]),
        (hardware_state(steal=0.2), ["20 %"]),
    ],
)
def test_what_disturbed_a_number_is_said_beside_it(state: HardwareState, words: list[str]) -> None:
    (remark,) = remarks(record(state))
    for word in words:
        assert word in remark


def test_an_undisturbed_number_needs_no_remark() -> None:
    assert remarks(record(hardware_state(gpu_state(), steal=0.01), hardware_state(gpu_state(), steal=None))) == []
    assert remarks(timed([1.0, 1.1])) == []


def test_a_slowdown_that_stayed_is_told_from_one_that_went() -> None:
    slowed = gpu_state(reasons={"thermal slowdown (hardware)": 0.5})
    went, stayed = (record(hardware_state(gpu), measured_again="heat on GPU 0") for gpu in (gpu_state(), slowed))
    assert len(remarks(went)) == 1
    assert "heat on GPU 0" in remarks(went)[0]
    again, still = remarks(stayed)
    assert again == remarks(went)[0]
    assert "thermal slowdown (hardware)" in still


@pytest.mark.parametrize(
    ("enqueue", "case", "gpus", "bound"),
    [
        (0.95, {}, 1, True),
        (0.5, {}, 1, False),
        (0.95, {}, 0, False),
        (0.95, {"call": "blocking"}, 1, False),
        (None, {}, 1, False),
    ],
)
def test_a_pace_that_the_launching_thread_sets_is_said(
    enqueue: float | None, case: dict[str, str], gpus: int, bound: bool
) -> None:
    state = hardware_state(*[gpu_state()] * gpus)
    found = remarks(replace(record(state, enqueue=enqueue), case=case))
    assert [remark.split(",")[0] for remark in found] == ["bound by the launching thread"] * bound


@pytest.mark.parametrize("enqueue", [0.5, 0.95])
def test_a_ring_that_waits_for_its_launches_is_no_verdict(make_result: Callable[..., Result], enqueue: float) -> None:
    entry = Telemetry(rounds_id="r", enqueue=enqueue, state=hardware_state(gpu_state()))
    both = [replace(timed([1.0] * 6, algorithm=name, devices=8, bytes=4096), telemetry=[entry]) for name in ALGORITHMS]
    (compared,) = [
        found.text for found in allreduce.findings(make_result(both)) if "the naive all-reduce" in found.text
    ]
    assert ("no verdict" in compared) == (enqueue > 0.9)


def test_processes_with_the_same_remark_say_it_once() -> None:
    state = hardware_state(steal=0.2)
    assert len(remarks(record(state, state, state))) == 1


def test_the_energy_of_a_call_is_the_median_over_processes() -> None:
    assert energy(record(hardware_state(), hardware_state(), joules=0.25)) == "0.25 J"
    assert energy(record(hardware_state())) == ""


def test_the_overview_has_each_gpus_range_over_all_records(make_result: Callable[..., Result]) -> None:
    cold, hot = (gpu_state(temperature_c=replace(gpu_state().temperature_c, **c)) for c in ({"low": 31}, {"high": 88}))
    silent = gpu_state(power_w=None)
    rows = dict(overview(make_result([record(hardware_state(cold, silent)), record(hardware_state(hot, silent))])))
    assert rows["GPU 0 temperature"] == "31 to 88 °C"
    assert not any(digit.isdigit() for digit in rows["GPU 1 power"])


def test_an_unknown_frequency_keeps_its_reason(make_result: Callable[..., Result]) -> None:
    state = hardware_state(cpu_mhz=None, missing={"cpu_mhz": "no such file"})
    assert "no such file" in dict(overview(make_result([record(state)])))["CPU frequency"]


def test_without_telemetry_there_is_no_overview(make_result: Callable[..., Result]) -> None:
    assert overview(make_result([timed([1.0])])) == []
