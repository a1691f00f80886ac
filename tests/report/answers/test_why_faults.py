"""A planted fault of the machine is named in the breakdown of steps, and no smaller batch is blamed for it."""

from dataclasses import replace

import pytest
from scalecard.analysis.platforms import PlatformResults
from scalecard.records.record import Result, Slowdown
from scalecard.report.answers import why
from support.builders import gpu_state, hardware_state
from support.health_boxes import Box
from support.simulated_clusters import simulated

REDUCED = " would reduce it."


def answers(strategies: Result, box: Box) -> list[str]:
    found = PlatformResults({"strategies": strategies, "health": box.result()})
    return [finding.text for finding in why.findings(found)]


@pytest.fixture(scope="module")
def strategies() -> Result:
    return simulated(8, seed=1)["strategies"]


def test_without_a_fault_the_largest_term_has_its_usual_remedy(strategies: Result) -> None:
    first, *_ = answers(strategies, Box(switched=18))
    assert "a step takes" in first
    assert first.endswith(REDUCED)


@pytest.mark.parametrize(
    ("box", "said"),
    [
        (Box(switched=18, hot={6}), "GPU 6, sustained load (fell to "),
        (Box(switched=18, slots={1: (5, 4)}), "GPU 1, slot width (x4 instead of x16)"),
        (Box(switched=18, pairs={(2, 5): 0.5}), "GPU 2 and GPU 5: the link between them ("),
    ],
)
def test_a_fault_that_health_found_comes_first(strategies: Result, box: Box, said: str) -> None:
    fault, *others = answers(strategies, box)
    assert f"this machine has faults that steps meet: {said}" in fault
    assert not [text for text in others if text.endswith(REDUCED)]
    assert [text for text in others if text.endswith("; mend what is named above first.")]


def test_a_disk_that_is_full_slows_no_step(strategies: Result) -> None:
    assert answers(strategies, Box(switched=18, free_bytes=2**30))[0].endswith(REDUCED)


def test_a_gpu_that_was_slowed_down_while_steps_were_timed_is_named(strategies: Result) -> None:
    """GPU 6 was too hot in three quarters of the readings, though it was well while health looked at it."""
    hot = gpu_state(reasons={Slowdown.THERMAL_BY_HARDWARE: 0.75})
    state = hardware_state(*[gpu_state()] * 6, hot, gpu_state())
    records = [
        replace(record, telemetry=[replace(entry, state=state) for entry in record.telemetry])
        for record in strategies.records
    ]
    fault, *_ = answers(replace(strategies, records=records), Box(switched=18))
    assert "GPU 6, slowed down while they were timed (" in fault
    assert f"{Slowdown.THERMAL_BY_HARDWARE} in 75 % of the readings" in fault
    assert "GPU 5" not in fault
