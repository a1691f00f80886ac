"""Rounds, warm-up, stopping, running out of memory: on a simulated clock, and once on the real one."""

import dataclasses
import random
import time
from collections.abc import Callable

import pytest
import torch
from scalecard import measure
from scalecard.measure import Rule
from scalecard.stats import paired_ratio


class SimulatedMachine:
    """A clock that only work advances, with noise and a slow drift, as a busy machine has them."""

    def __init__(self, noise: float = 0.0, drift: float = 0.0, seed: int = 0) -> None:
        self.now, self.noise, self.drift, self.draw = 0, noise, drift, random.Random(seed)

    def clock(self) -> int:
        return self.now

    def work(self, seconds: float) -> Callable[[], None]:
        def run() -> None:
            factor = 1 + self.draw.gauss(0, self.noise) + self.drift * self.now / 1e9
            self.now += int(seconds * max(0.1, factor) * 1e9)

        return run


def test_known_sleep(rule: Rule) -> None:
    timing = measure.rounds({"sleep": lambda: time.sleep(0.005)}, devices=[], rule=rule)["sleep"]
    assert 0.005 <= min(timing.completion) < 0.02


def test_warm_up_is_dropped(rule: Rule) -> None:
    machine, calls = SimulatedMachine(), []

    def work() -> None:
        calls.append(len(calls))
        machine.work(1.0 if len(calls) <= 3 else 0.01)()

    warm = dataclasses.replace(rule, warmup_seconds=3)
    timing = measure.rounds({"w": work}, devices=[], rule=warm, clock=machine.clock)["w"]
    assert max(timing.completion) == pytest.approx(0.01)


def test_a_block_is_as_long_as_asked(rule: Rule) -> None:
    machine = SimulatedMachine()
    blocks = dataclasses.replace(rule, block_seconds=0.02)
    timing = measure.rounds({"w": machine.work(0.001)}, devices=[], rule=blocks, clock=machine.clock)["w"]
    assert timing.iterations == 20
    assert timing.completion[0] == pytest.approx(0.001)


def test_every_device_is_waited_for_and_enqueueing_is_told_apart(rule: Rule) -> None:
    machine = SimulatedMachine()

    class Device:
        def __init__(self) -> None:
            self.queued = 0.0

        def submit(self) -> None:
            machine.work(0.001)()
            self.queued = 0.5

        def synchronize(self) -> None:
            machine.work(self.queued)()
            self.queued = 0.0

    devices = [Device(), Device()]
    work = {"w": lambda: [d.submit() for d in devices]}
    timing = measure.rounds(work, devices=devices, rule=rule, clock=machine.clock)["w"]
    assert timing.enqueue[0] == pytest.approx(0.002)
    assert timing.completion[0] == pytest.approx(1.002)


@pytest.mark.parametrize(
    ("changes", "noise", "reason"),
    [
        ({}, 0.0, "interval within 1%"),
        ({"max_rounds": 20}, 0.5, "20 rounds"),
        ({"max_seconds": 1.0}, 0.5, "1 s a variant"),
    ],
)
def test_the_reason_for_stopping_is_recorded(rule: Rule, changes: dict[str, float], noise: float, reason: str) -> None:
    machine = SimulatedMachine(noise)
    works = {"a": machine.work(0.1), "b": machine.work(0.1)}
    timings = measure.rounds(works, devices=[], rule=dataclasses.replace(rule, **changes), clock=machine.clock)
    assert timings["a"].stopped == reason
    assert timings["a"].record({}).telemetry[0]["stopped"] == reason


def test_equal_work_is_never_called_different_and_three_percent_is_found(rule: Rule) -> None:
    verdicts: dict[float, list[str]] = {1.0: [], 1.03: []}
    longer = dataclasses.replace(rule, min_rounds=12, max_rounds=160, max_seconds=1000)
    for factor, found in verdicts.items():
        for seed in range(20):
            machine = SimulatedMachine(noise=0.02, drift=0.01, seed=seed)
            works = {"a": machine.work(0.02), "b": machine.work(0.02 * factor)}
            timings = measure.rounds(works, devices=[], rule=longer, clock=machine.clock)
            found.append(paired_ratio([timings["b"].completion], [timings["a"].completion]).verdict)
    assert not {"faster", "slower"} & set(verdicts[1.0])
    assert verdicts[1.03].count("slower") >= 19


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_out_of_memory_fails_one_variant_only(rule: Rule, error: Exception) -> None:
    def greedy() -> None:
        raise error

    timings = measure.rounds({"modest": lambda: None, "greedy": greedy}, devices=[], rule=rule)
    record = timings["greedy"].record({"split_size": 3})
    assert (record.status, record.samples) == ("failed", [])
    assert "out of memory" in record.note
    assert timings["modest"].record({}).status == "ok"


def test_any_other_error_is_not_swallowed(rule: Rule) -> None:
    def wrong() -> None:
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        measure.rounds({"wrong": wrong}, devices=[], rule=rule)


def test_every_epoch_is_kept() -> None:
    tested: list[str] = []
    trainers = {"a": lambda: None, "b": lambda: None}
    seconds = measure.epochs(trainers, num_epochs=4, devices=[], after=tested.append)
    assert {name: len(timing.completion) for name, timing in seconds.items()} == {"a": 4, "b": 4}
    assert sorted(tested) == ["a"] * 4 + ["b"] * 4
