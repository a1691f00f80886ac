"""One block of calls: how long it is, when its clock stops, and what is read around it."""

import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest
from scalecard.measuring.case_variant import Prepared, Timing
from scalecard.measuring.stopping_rule import Rule
from scalecard.measuring.timer import Bench
from support.simulated_clock import SimulatedMachine, subject, variants


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


def test_a_sleep_takes_as_long_as_it_lasts() -> None:
    completion = Bench([]).block(lambda: time.sleep(0.005), 3).completion
    assert 0.005 <= completion < 0.05


def test_warm_up_calls_until_the_work_is_warm_and_a_block_is_as_long_as_asked(rule: Rule) -> None:
    machine, calls = SimulatedMachine(), []

    def work() -> None:
        calls.append(len(calls))
        machine.work(1.0 if len(calls) <= 3 else 0.001)()

    bench = Bench([], clock=machine.clock)
    assert bench.warm_up(work, replace(rule, warmup_seconds=3.0005, block_seconds=0.02)) == 20
    assert len(calls) == 4 + 20, "and a block, to see how long it is"


def test_every_device_is_waited_for_and_enqueueing_is_told_apart() -> None:
    machine = SimulatedMachine()
    devices = [Queue(machine), Queue(machine)]
    enqueue, completion, _ = Bench(devices, clock=machine.clock).block(lambda: [d.submit() for d in devices], 1)
    assert enqueue == pytest.approx(0.002)
    assert completion == pytest.approx(1.002)


def test_work_left_from_before_is_not_counted() -> None:
    machine = SimulatedMachine()
    device = Queue(machine)
    device.submit()
    completion = Bench([device], clock=machine.clock).block(machine.work(0.1), 1).completion
    assert completion == pytest.approx(0.1)


def test_a_sample_is_the_slowest_ranks() -> None:
    def maximum(values: Sequence[float]) -> list[float]:
        return [max(value, 7.0) for value in values]

    ranks = SimpleNamespace(leads=True, alone=False, spans_nodes=False, barrier=lambda: None, maximum=maximum)
    block = Bench([], ranks).block(lambda: None, 1)
    assert (block.enqueue, block.completion) == (7.0, 7.0)
    assert 0 < block.own < 7.0, "how long this rank itself took"


def test_waiting_for_the_other_ranks_is_not_counted() -> None:
    machine = SimulatedMachine()
    alike = {"leads": True, "alone": False, "spans_nodes": False, "maximum": list}
    ranks = SimpleNamespace(barrier=machine.work(5.0), **alike)
    assert Bench([], ranks, machine.clock).block(machine.work(0.1), 2) == (0.1, 0.1, 0.1)


def test_every_rank_learns_that_the_leading_ones_gpu_was_slowed_down() -> None:
    ranks = SimpleNamespace(maximum=lambda values: [1.0])
    assert Bench([], ranks).agreed_slowdown(None) == "a GPU was slowed down"
    alone = SimpleNamespace(maximum=lambda values: values)
    assert Bench([], alone).agreed_slowdown(None) == ""


def test_a_block_is_as_long_as_asked_though_single_calls_are_waited_for(rule: Rule) -> None:
    """A call takes 1 ms and waiting 9 ms, which ten calls together need only once."""
    machine = SimulatedMachine()
    device = SimpleNamespace(synchronize=machine.work(0.009))
    bench = Bench([device], clock=machine.clock)
    calls = bench.warm_up(machine.work(0.001), replace(rule, warmup_seconds=0, block_seconds=0.1))
    seconds = bench.block(machine.work(0.001), calls).completion
    assert calls * seconds == pytest.approx(0.1, rel=0.2)


def test_with_batches_in_turn_a_sample_is_the_mean_of_the_slowest_ranks_with_each() -> None:
    """They take 1 and 3 s here, and 2 and 2 s on another rank: 2.5 s, though either rank takes 2 s on average."""
    machine, taken, held = SimulatedMachine(), list[int](), [0]

    def hold(turn: int | None) -> None:
        held[0] = turn or 0

    def work() -> None:
        taken.append(held[0])
        machine.work((1.0, 3.0)[held[0]])()

    alike = {"leads": True, "alone": False, "spans_nodes": False, "barrier": lambda: None}

    def maximum(values: Sequence[float]) -> list[float]:
        return [max(value, 4.0) for value in values] if len(values) == 2 else list(values)  # a block's, or an overrun

    ranks = SimpleNamespace(maximum=maximum, **alike)
    (variant,) = variants(mine=work)
    prepared = Prepared(variant=variant, subject=subject(work, turns=2, hold=hold), checks=[], work=[], initial=0.0)
    timing = Timing(variant=variant, prepared=prepared, iterations=2)
    assert Bench([], ranks, machine.clock).sample(timing) == pytest.approx(10.0)
    assert taken == [0, 0, 1, 1], "two calls with each, in a block of its own"
    assert timing.completion == [2.5], "blocks of 2 and 6 s here, and of 4 and 4 s there"
    assert timing.by_turn == [[2.0, 3.0]]
    assert timing.own == [2.0]
    assert timing.prepared
    assert timing.prepared.calls == 4


def test_the_warm_up_calls_all_batches(rule: Rule) -> None:
    machine, calls = SimulatedMachine(), list[int]()

    def work() -> None:
        calls.append(1)
        machine.work(0.25)()

    assert Bench([], clock=machine.clock).warm_up(work, rule, turns=3) == 1
    assert len(calls) == 3
