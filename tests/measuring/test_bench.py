"""One block of calls: how long it is, when its clock stops, and what is read around it."""

import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from scalecard.measuring.bench import ALONE, Bench
from scalecard.measuring.rule import Rule
from scalecard.measuring.timing import Timing
from simulated_clock import SimulatedMachine, ready, variants


class Queue:
    """A device: submitting takes 1 ms, and what was submitted is done 0.5 s after somebody waits."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self.machine, self.queued = machine, 0.0

    def submit(self) -> None:
        self.machine.work(0.001)()
        self.queued = 0.5

    def synchronize(self) -> None:
        self.machine.work(self.queued)()
        self.queued = 0.0


def sampled(bench: Bench, watch: Any) -> Timing:
    """The timing of one block of ten calls."""
    timing = Timing(variant=variants(w=lambda: None)[0], prepared=ready(lambda: None), iterations=10)
    bench.sample(timing, watch)
    return timing


def test_a_sleep_takes_as_long_as_it_lasts() -> None:
    _, completion = Bench([]).block(lambda: time.sleep(0.005), 3)
    assert 0.005 <= completion < 0.05


def test_warm_up_calls_until_the_work_is_warm_and_a_block_is_as_long_as_asked(rule: Rule) -> None:
    machine, calls = SimulatedMachine(), []

    def work() -> None:
        calls.append(len(calls))
        machine.work(1.0 if len(calls) <= 3 else 0.001)()

    bench = Bench([], clock=machine.clock)
    assert bench.warm_up(work, replace(rule, warmup_seconds=3.0005, block_seconds=0.02)) == 20
    assert len(calls) == 4


def test_every_device_is_waited_for_and_enqueueing_is_told_apart() -> None:
    machine = SimulatedMachine()
    devices = [Queue(machine), Queue(machine)]
    enqueue, completion = Bench(devices, clock=machine.clock).block(lambda: [d.submit() for d in devices], 1)
    assert enqueue == pytest.approx(0.002)
    assert completion == pytest.approx(1.002)


def test_work_left_from_before_is_not_counted() -> None:
    machine = SimulatedMachine()
    device = Queue(machine)
    device.submit()
    _, completion = Bench([device], clock=machine.clock).block(machine.work(0.1), 1)
    assert completion == pytest.approx(0.1)


def test_a_sample_is_the_slowest_ranks() -> None:
    def maximum(values: Sequence[float]) -> list[float]:
        return [max(value, 7.0) for value in values]

    ranks = SimpleNamespace(leads=True, spans_nodes=False, barrier=lambda: None, maximum=maximum)
    assert Bench([], ranks).block(lambda: None, 1) == (7.0, 7.0)


@pytest.mark.parametrize(("over_nodes", "per_call"), [(False, 0.5), (True, None)])
def test_energy_is_counted_per_call_and_only_where_all_gpus_are_seen(over_nodes: bool, per_call: float | None) -> None:
    counter = iter([100.0, 105.0])
    ranks = SimpleNamespace(leads=True, spans_nodes=over_nodes, barrier=ALONE.barrier, maximum=ALONE.maximum)
    timing = sampled(Bench([], ranks), SimpleNamespace(energy=lambda: next(counter)))
    assert timing.telemetry.joules == per_call


def test_without_an_energy_counter_there_is_no_energy() -> None:
    assert sampled(Bench([]), SimpleNamespace(energy=lambda: None)).telemetry.joules is None
    assert sampled(Bench([]), None).telemetry.joules is None
