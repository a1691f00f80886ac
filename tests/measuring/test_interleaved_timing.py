"""Rounds: what is dropped, why they stop, running out of memory, and being slowed down."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from scalecard.measuring import stopping_rule
from scalecard.measuring.case_variant import Timing, Work
from scalecard.measuring.interleaved_timing import time_rounds
from scalecard.measuring.stopping_rule import Rule
from scalecard.records.record import Reason
from scalecard.records.statistics import paired_ratio
from support.fake_nvml import A100, H100, FakeNvml, box
from support.simulated_clock import SimulatedMachine, variants

Install = Callable[..., FakeNvml]


def timed(machine: SimulatedMachine, rule: Rule, **works: Work) -> list[Timing]:
    return time_rounds(variants(**works), devices=[], rule=rule, clock=machine.clock)


def test_warm_up_is_dropped(rule: Rule) -> None:
    machine, calls = SimulatedMachine(), []

    def work() -> None:
        calls.append(len(calls))
        machine.work(1.0 if len(calls) <= 3 else 0.01)()

    (timing,) = timed(machine, replace(rule, warmup_seconds=3), w=work)
    assert max(timing.completion) == pytest.approx(0.01)


def test_timings_come_in_the_order_given_and_share_their_rounds(rule: Rule) -> None:
    machine = SimulatedMachine()
    timings = timed(machine, rule, b=machine.work(0.2), a=machine.work(0.1))
    assert [timing.variant.name for timing in timings] == ["b", "a"]
    assert [timing.completion[0] for timing in timings] == pytest.approx([0.2, 0.1])
    assert len({timing.telemetry.rounds_id for timing in timings}) == 1


@pytest.mark.parametrize(
    ("changes", "noise", "reason"),
    [
        ({}, 0.0, "interval within 1 %"),
        ({"max_rounds": 20}, 0.5, "20 rounds"),
        ({"max_seconds": 1.0}, 0.5, "1 s per variant"),
    ],
)
def test_the_reason_for_stopping_is_recorded(rule: Rule, changes: dict[str, float], noise: float, reason: str) -> None:
    machine = SimulatedMachine(noise)
    for timing in timed(machine, replace(rule, **changes), a=machine.work(0.1), b=machine.work(0.1)):
        (telemetry,) = timing.record().telemetry
        assert telemetry.stopped == reason


@pytest.mark.parametrize(("seconds", "rounds_run"), [(10.0, 2), (1.4, 3), (0.5, 6)])
def test_slow_work_gets_three_times_as_long_and_two_rounds(rule: Rule, seconds: float, rounds_run: int) -> None:
    """With one second per variant: two rounds however long they take, three of 1.4 s, six of half a second."""
    machine, slow = SimulatedMachine(), replace(rule, min_rounds=20, max_rounds=20, max_seconds=1)
    (timing,) = timed(machine, slow, a=machine.work(seconds))
    assert len(timing.completion) == rounds_run


def test_precision_is_looked_at_seldom(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is another chance to stop on an interval that is narrow by luck; so after a quarter more each time."""
    looked: list[int] = []
    monkeypatch.setattr(stopping_rule, "is_precise", lambda samples, precision: looked.append(len(samples[0])))
    machine, few = SimulatedMachine(0.1), replace(rule, min_rounds=8, max_rounds=20, max_seconds=1000)
    timed(machine, few, a=machine.work(0.1), b=machine.work(0.1))
    assert looked == [8, 10, 13, 17]


def test_equal_work_is_never_called_different_and_three_percent_is_found(rule: Rule) -> None:
    verdicts: dict[float, list[str]] = {1.0: [], 1.03: []}
    longer = replace(rule, min_rounds=12, max_rounds=160, max_seconds=1000)
    for factor, found in verdicts.items():
        for seed in range(20):
            machine = SimulatedMachine(noise=0.02, drift=0.01, seed=seed)
            a, b = timed(machine, longer, a=machine.work(0.02), b=machine.work(0.02 * factor))
            found.append(paired_ratio([b.completion], [a.completion]).verdict)
    assert not {"faster", "slower"} & set(verdicts[1.0])
    assert verdicts[1.03].count("slower") >= 19


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
@pytest.mark.parametrize("good_calls", [0, 3], ids=["at warm-up", "in a round"])
def test_out_of_memory_fails_one_variant_only(rule: Rule, error: Exception, good_calls: int) -> None:
    calls = iter(range(good_calls))

    def greedy() -> None:
        if next(calls, None) is None:
            raise error

    modest, failed = time_rounds(variants(modest=lambda: None, greedy=greedy), devices=[], rule=rule)
    record = failed.record()
    assert (record.status, record.samples, record.case) == ("failed", [], {"name": "greedy"})
    assert (record.reason, record.note) == (Reason.OUT_OF_MEMORY, str(error))
    assert failed.enqueue_record().status == "failed"
    assert modest.record().status == "ok"


def test_any_other_error_is_not_swallowed(rule: Rule) -> None:
    def wrong() -> None:
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        time_rounds(variants(wrong=wrong), devices=[], rule=rule)


def test_a_slowdown_is_recorded_and_measured_once_more(install_gpus: Install, rule: Rule) -> None:
    boards = box(H100, 1)
    boards[0].reasons = 0x40
    install_gpus(boards)
    calls: list[int] = []
    (timing,) = time_rounds(variants(w=lambda: calls.append(1)), devices=[], rule=rule)
    assert timing.telemetry.measured_again.startswith("thermal slowdown (hardware) on GPU 0")
    assert timing.state
    assert timing.state.gpus[0].reasons == {"thermal slowdown (hardware)": 1.0}
    assert len(calls) >= 2 * len(timing.completion)


def test_the_power_cap_is_recorded_and_not_measured_again(install_gpus: Install, rule: Rule) -> None:
    boards = box(A100, 1)
    boards[0].reasons = 0x4
    install_gpus(boards)
    (timing,) = time_rounds(variants(w=lambda: None), devices=[], rule=rule)
    assert timing.telemetry.measured_again == ""
    assert timing.state
    assert timing.state.gpus[0].reasons == {"power cap": 1.0}
