"""Joules per call: over a second at least, per call, and only where every GPU counts them and is seen."""

from types import SimpleNamespace
from typing import Any

import pytest
from scalecard.measuring.case_variant import NOT_ASKED, Timing
from scalecard.measuring.interleaved_timing import NO_COUNTER, OTHER_NODES, TOO_SHORT, Meter
from scalecard.measuring.shared_decisions import ALONE
from scalecard.measuring.timer import Bench
from support.simulated_clock import SimulatedMachine, ready, variants

WATTS = 300

OTHERS = {"alone": False, "barrier": ALONE.barrier}


def watch(machine: SimulatedMachine) -> Any:
    """A GPU that uses 300 W all the time."""
    return SimpleNamespace(energy=lambda: WATTS * machine.now / 1e9)


def timing_of(machine: SimulatedMachine, seconds: float) -> Timing:
    """The timing of work that takes so many seconds, with two samples."""
    work = machine.work(seconds)
    (variant,) = variants(w=work)
    return Timing(variant=variant, prepared=ready(work), completion=[seconds, seconds])


@pytest.mark.parametrize("seconds", [0.001, 0.3, 4.0])
def test_a_pass_of_its_own_takes_a_second_or_one_call(seconds: float) -> None:
    machine = SimulatedMachine()
    timing = timing_of(machine, seconds)
    Meter(Bench([], clock=machine.clock), watch(machine)).pass_over(timing)
    assert timing.telemetry.joules == pytest.approx(WATTS * seconds)
    assert max(1.0, seconds) <= machine.now / 1e9 <= max(1.5, seconds)
    assert timing.prepared
    assert timing.prepared.calls * seconds == pytest.approx(machine.now / 1e9), "counted like other calls"


def test_epochs_add_up() -> None:
    machine = SimulatedMachine()
    timing = timing_of(machine, 2.0)
    meter = Meter(Bench([], clock=machine.clock), watch(machine))
    for _ in range(3):
        meter.add(timing, lambda: Bench([], clock=machine.clock).sample(timing), 1)
        machine.work(50)()  # testing between two epochs is not part of them
    assert timing.telemetry.joules == pytest.approx(WATTS * 2.0)
    assert timing.telemetry.no_joules == ""


@pytest.mark.parametrize(
    ("counter", "over_nodes", "seconds", "reason"),
    [(True, False, 0.5, TOO_SHORT), (False, False, 2.0, NO_COUNTER), (True, True, 2.0, OTHER_NODES)],
)
def test_without_a_measurement_there_is_a_reason(counter: bool, over_nodes: bool, seconds: float, reason: str) -> None:
    machine = SimulatedMachine()
    timing = timing_of(machine, seconds)
    ranks = SimpleNamespace(**OTHERS, leads=True, spans_nodes=over_nodes, maximum=ALONE.maximum)
    bench = Bench([], ranks, clock=machine.clock)
    meter = Meter(bench, watch(machine) if counter else SimpleNamespace(energy=lambda: None))
    meter.add(timing, lambda: bench.sample(timing), 1)
    assert (timing.telemetry.joules, timing.telemetry.no_joules) == (None, reason)


def test_where_nobody_asked_that_is_the_reason() -> None:
    assert timing_of(SimulatedMachine(), 1.0).telemetry.no_joules == NOT_ASKED


def test_a_rank_that_does_not_watch_runs_along() -> None:
    """The leading rank reads the counters for all, so all of them run the second that it needs."""
    machine = SimulatedMachine()
    timing = timing_of(machine, 0.3)
    ranks = SimpleNamespace(**OTHERS, leads=False, spans_nodes=False, maximum=lambda values: [1.0])
    meter = Meter(Bench([], ranks), None)
    meter.add(timing, lambda: 1.2, 4)
    assert (timing.telemetry.joules, timing.telemetry.no_joules) == (None, "")
