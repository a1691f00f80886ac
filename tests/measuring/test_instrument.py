"""The instrument itself: a known thing is measured, and what is known about it must come out."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from scalecard.distributed import Layout
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch
from scalecard.hardware.device_timestamps import ClockMark
from scalecard.hardware.devices import open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.interleaved_timing import time_epochs, time_rounds
from scalecard.measuring.shared_decisions import ALONE
from scalecard.measuring.stopping_rule import Rule
from scalecard.measuring.timer import Bench, Block, NotSynchronised
from support.simulated_clock import SimulatedMachine, variants


class AsyncDevice:
    """Submitting takes 1 ms; the work is done later, in turn. Waiting ends after the share `waits` of what is left."""

    def __init__(self, machine: SimulatedMachine, *, waits: float = 1.0) -> None:
        self.machine, self.waits, self.idle_at, self.marks = machine, waits, 0, 0

    fault = ""

    def submit(self, seconds: float) -> None:
        self.machine.work(0.001)()
        self.idle_at = max(self.idle_at, self.machine.now) + round(seconds * 1e9)

    def synchronize(self) -> None:
        self.machine.now += round(self.waits * max(0, self.idle_at - self.machine.now))

    def mark(self, clock: Callable[[], int]) -> ClockMark:
        self.marks += 1
        reached = max(self.idle_at, clock())
        return ClockMark(lambda: reached)

    def __str__(self) -> str:
        return "device 7"


def ranks(**changes: object) -> SimpleNamespace:
    facts = {"leads": True, "alone": False, "spans_nodes": False, "barrier": ALONE.barrier, "maximum": ALONE.maximum}
    return SimpleNamespace(**{**facts, **changes})


def test_a_block_is_timed_until_the_last_device_is_done_and_divided_by_its_calls() -> None:
    """Ten calls: 20 submissions take 20 ms. The second device gets its first work after 2 ms and has 10 x 50 ms."""
    machine = SimulatedMachine()
    first, second = AsyncDevice(machine), AsyncDevice(machine)
    bench = Bench([first, second], clock=machine.clock)
    enqueue, completion, _ = bench.block(lambda: [d.submit(0.050) for d in (first, second)], 10)
    assert enqueue == pytest.approx(0.002)
    assert completion == pytest.approx(0.0502)


def test_a_worker_that_sleeps_is_timed_while_it_sleeps(machine: Machine) -> None:
    with open_devices(machine, 1) as (device,):
        enqueue, completion, _ = Bench([device]).block(lambda: device.submit(time.sleep, 0.03), 4)
    assert enqueue < 0.015, "four submissions do not wait for 120 ms of sleep"
    assert 0.03 <= completion < 0.06


@pytest.mark.parametrize("epochs", [False, True])
def test_a_synchronize_that_waits_for_nothing_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, rule: Rule, epochs: bool
) -> None:
    """What a worker is still doing cannot be complete."""
    measure = partial(time_epochs, num_epochs=2) if epochs else partial(time_rounds, rule=rule)
    with open_devices(machine, 2) as devices:
        monkeypatch.setattr(devices[1], "synchronize", lambda: None)
        work = variants(w=lambda: devices[1].submit(time.sleep, 0.1))
        with pytest.raises(NotSynchronised, match=r"^device 1 worked for 1\d\d.* ms, but the clock stopped after"):
            measure(work, devices=devices)


@pytest.mark.parametrize(("waits", "refused"), [(0.0, True), (0.5, True), (0.94, True), (0.96, False), (1.0, False)])
def test_the_clock_may_stop_five_percent_before_the_devices_own_time(waits: float, refused: bool) -> None:
    """0.94 x 1.05 = 0.987 of the second that the device worked, 0.96 x 1.05 = 1.008 of it."""
    machine = SimulatedMachine()
    device = AsyncDevice(machine, waits=waits)
    bench = Bench([device], clock=machine.clock)
    if not refused:
        bench.block(lambda: device.submit(1.0), 1, compared=True)
        return
    with pytest.raises(NotSynchronised, match="device 7 worked for 1001 ms"):
        bench.block(lambda: device.submit(1.0), 1, compared=True)


def test_devices_mark_the_first_block_of_each_variant_only(rule: Rule) -> None:
    machine = SimulatedMachine()
    device = AsyncDevice(machine)
    work = {name: lambda: device.submit(0.1) for name in "abc"}
    first, *_ = time_rounds(variants(**work), devices=[device], rule=rule, clock=machine.clock)
    assert device.marks == 2 * 3
    assert first.completion == pytest.approx([0.101] * rule.min_rounds)


def test_if_one_rank_refuses_all_do() -> None:
    """What the others say is 0.25 s: they did not wait for their devices."""
    others = ranks(maximum=lambda values: [max(value, 0.25) for value in values])
    with pytest.raises(NotSynchronised, match="on another rank, a device worked 250 ms longer"):
        Bench([], others).block(lambda: None, 1, compared=True)


def test_a_rank_that_starts_late_is_waited_for_before_the_clock_starts() -> None:
    """An all-reduce of 0.1 s that cannot begin before the last rank is there, at 5 s."""
    machine = SimulatedMachine()

    def until_the_last_is_there() -> None:
        machine.now = max(machine.now, 5_000_000_000)

    def all_reduce() -> None:
        until_the_last_is_there()
        machine.work(0.1)()

    completion = Bench([], ranks(barrier=until_the_last_is_there), machine.clock).block(all_reduce, 1).completion
    assert completion == pytest.approx(0.1)


def test_each_of_the_two_times_is_the_slowest_ranks() -> None:
    """We enqueue for 1 ms and are done after 0.301 s; another rank enqueues for 0.2 s and is done after 0.25 s."""
    machine = SimulatedMachine()
    device = AsyncDevice(machine)

    def maximum(values: Sequence[float]) -> list[float]:
        return [max(pair) for pair in zip(values, [0.2, 0.25], strict=True)]

    bench = Bench([device], ranks(maximum=maximum), machine.clock)
    assert bench.block(lambda: device.submit(0.3), 1) == pytest.approx((0.2, 0.301, 0.301))


def late_and_slow(ctx: RankContext) -> Block:
    """Rank 1 comes 0.8 s late and, once the ranks have met in the work, works for 0.1 s more."""
    mine = torch.ones(1)

    def work() -> None:
        dist.all_reduce(mine)
        time.sleep(0.1 * ctx.rank)

    time.sleep(0.8 * ctx.rank)
    return Bench([ctx], ctx).block(work, 1, compared=True)


@pytest.mark.usefixtures("forked_ranks")
def test_ranks_agree_on_the_slow_one_and_the_late_one_does_not_count(machine: Machine) -> None:
    first, second = launch(late_and_slow, layout=Layout(2), machine=machine)
    assert first[:2] == second[:2]
    assert 0.1 <= first.completion < 0.5
    assert first.own < 0.1 <= second.own, "what a rank says of itself leaves the others out"


def orders(rule: Rule, *, epochs: bool) -> tuple[list[str], list[float]]:
    """Who worked when in 20 rounds of equal work, and the ratios b/a. What comes first in a round takes 1.5 x as long.

    The first call of each, in the warm-up of rounds, is left out.
    """
    machine = SimulatedMachine()
    order: list[str] = []

    def work(name: str) -> Callable[[], None]:
        def run() -> None:
            machine.work(0.10 if len(order) % 2 else 0.15)()
            order.append(name)

        return run

    both = variants(a=work("a"), b=work("b"))
    if epochs:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("scalecard.measuring.interleaved_timing.Bench", partial(Bench, clock=machine.clock))
            a, b = time_epochs(both, num_epochs=20, devices=[])
    else:
        twenty = replace(rule, min_rounds=20, max_rounds=20)
        a, b = time_rounds(both, devices=[], rule=twenty, clock=machine.clock)
    return order[-40:], [y / x for x, y in zip(a.completion, b.completion, strict=True)]


@pytest.mark.parametrize("epochs", [False, True])
def test_rounds_are_shuffled_so_what_comes_first_is_not_always_the_same(rule: Rule, epochs: bool) -> None:
    """In turn, b/a would be 0.10/0.15 = 0.667 in every round; shuffled, it is 0.667 or 1.5, about half of the time."""
    order, ratios = orders(rule, epochs=epochs)
    assert all(set(turn) == {"a", "b"} for turn in zip(order[::2], order[1::2], strict=True)), "each once per round"
    assert 5 <= sum(ratio > 1.4 for ratio in ratios) <= 15
    assert sum(ratio < 0.7 for ratio in ratios) == 20 - sum(ratio > 1.4 for ratio in ratios)
    assert orders(rule, epochs=epochs)[0] == order, "ranks, which work together, draw the same order"


def test_side_by_side_every_device_takes_its_own_time(rule: Rule) -> None:
    """One needs 50 ms a call, the other 80: neither waits for the other, and both take as long as the slower one."""
    machine = SimulatedMachine()
    devices = {"fast": AsyncDevice(machine), "slow": AsyncDevice(machine)}
    works = {"fast": 0.050, "slow": 0.080}
    both = [
        replace(one, place=devices[one.name])
        for one in variants(**{name: partial(devices[name].submit, seconds) for name, seconds in works.items()})
    ]
    options = {"devices": list(devices.values()), "rule": replace(rule, warmup_seconds=0), "clock": machine.clock}
    found = {timing.variant.name: timing for timing in time_rounds(both, at_once=True, **options)}  # type: ignore[arg-type]
    for name, seconds in works.items():
        assert found[name].completion == [pytest.approx(seconds, abs=0.002)] * len(found["fast"].completion)
        assert found[name].enqueue == [pytest.approx(0.001)] * len(found["fast"].completion)
    before = machine.now
    timings = [*found.values()]
    Bench(list(devices.values()), clock=machine.clock).sample_at_once(timings)
    longest = max(works[name] * found[name].iterations for name in works)
    assert (machine.now - before) / 1e9 < longest + 0.01 * sum(timing.iterations for timing in timings)
    for timing in timings:
        timing.iterations = 4
    Bench(list(devices.values()), clock=machine.clock).sample_at_once(timings)
    for name, seconds in works.items():
        assert found[name].enqueue[-1] == pytest.approx(0.001), "each call, of four"
        assert found[name].completion[-1] == pytest.approx(seconds, abs=0.002)


def test_after_a_failure_every_device_is_waited_for_and_nothing_is_left_for_later_work(machine: Machine) -> None:
    def fail() -> None:
        raise RuntimeError("out of memory")

    with open_devices(replace(machine, num_devices=2)) as devices:
        for device in devices:
            device.submit(fail)
            device.submit(fail)
        bench = Bench(devices)
        with pytest.raises(RuntimeError, match="out of memory"):
            bench.synchronize()
        bench.synchronize()
