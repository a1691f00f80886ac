"""What is not proven, does other work than it should, or leaves wrong parameters, leaves no time behind."""

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.interleaved_timing import time_epochs, time_rounds
from scalecard.measuring.prepare import fail_wrong, prepared
from scalecard.measuring.stopping_rule import Rule
from scalecard.measuring.timer import Bench
from scalecard.records.record import Check, Reason

PASSED = Check(name="stand-in", dtype="float64", difference=0, tolerance=0)


def variant(subject: Subject, name: str = "w", **more: Any) -> Variant:
    return Variant(name=name, case={"name": name}, build=lambda at: subject, **more)


def counter(value: Callable[[torch.Tensor], object]) -> Subject:
    """Work on one parameter that starts at 1, which an update changes once per call."""
    parameter = torch.ones(4, requires_grad=True)

    @torch.no_grad()
    def work() -> None:
        value(parameter)

    return Subject(work=work, prove=lambda: [PASSED], expected={"updates": 1}, state=lambda: [parameter])


def test_nothing_is_timed_that_was_not_proven(rule: Rule) -> None:
    calls: list[int] = []
    (timing,) = time_rounds([variant(Subject(work=lambda: calls.append(1), prove=list))], devices=[], rule=rule)
    assert (timing.record().reason, timing.completion) == (Reason.NOT_PROVEN, [])
    assert "w: nothing was proven" in timing.failure
    assert len(calls) == 1, "only to count what it does"


@pytest.mark.parametrize("wrong_at", ["proof", "timed"])
def test_what_is_timed_is_checked_like_what_is_proven(rule: Rule, wrong_at: str) -> None:
    def build(at: str) -> Subject:
        check = Check(name=at, dtype="float64", difference=float(at == wrong_at), tolerance=0)
        return Subject(work=lambda: None, prove=lambda: [check])

    one = Variant(name="w", case={"n": 1}, build=build, proven_at=["proof"], timed_at="timed")
    other = Variant(name="v", case={"n": 2}, build=lambda at: Subject(work=lambda: None, prove=lambda: [PASSED]))
    failed, fine = (timing.record() for timing in time_rounds([one, other], devices=[], rule=rule))
    assert (failed.status, failed.reason, fine.status) == ("failed", Reason.NOT_PROVEN, "ok")
    assert f"{wrong_at} (float64): differs by 1" in failed.note


def test_what_failed_on_more_ranks_before_is_not_timed(rule: Rule) -> None:
    wrong = Check(name="on 3 ranks", dtype="float64", difference=1, tolerance=0)
    one = variant(Subject(work=lambda: None, prove=lambda: [PASSED]), proven=[wrong])
    (timing,) = time_rounds([one], devices=[], rule=rule)
    assert timing.reason is Reason.NOT_PROVEN
    assert timing.failure.startswith("on 3 ranks (float64): differs by 1")


def test_a_builder_proves_one_setting_once(rule: Rule) -> None:
    built: list[str] = []

    def build(at: str) -> Subject:
        built.append(at)
        return Subject(work=lambda: None, prove=lambda: [PASSED])

    two = [Variant(name=n, case={"n": n}, build=build, proven_at=["small"], timed_at=n) for n in ("a", "b")]
    time_rounds(two, devices=[], rule=rule)
    assert built == ["small", "a", "b"]


@pytest.mark.parametrize(
    ("expected", "why"), [({"FLOPs": 1.0}, "FLOPs in one call: 2000 counted, 1 expected"), ({"updates": 2}, "updates")]
)
def test_work_that_is_not_what_it_should_be_is_refused(rule: Rule, expected: dict[str, float], why: str) -> None:
    x = torch.ones(10, 10)
    one = variant(Subject(work=lambda: x @ x, prove=lambda: [PASSED], expected=expected))
    (timing,) = time_rounds([one], devices=[], rule=rule)
    assert f"w: {why}" in timing.failure
    assert timing.record().reason is Reason.NOT_PROVEN


def test_proving_and_counting_leave_state_and_order_as_they_were(rule: Rule) -> None:
    parameter, order = torch.ones(2, requires_grad=True), torch.Generator().manual_seed(0)
    first = torch.randperm(9, generator=torch.Generator().manual_seed(0)).tolist()

    def work() -> list[int]:
        with torch.no_grad():
            parameter.add_(1)
        return torch.randperm(9, generator=order).tolist()

    def prove() -> list[Check]:
        work()
        return [PASSED]

    subject = Subject(work=work, prove=prove, state=lambda: [parameter], order=order)
    (timing,) = prepared([variant(subject)], Bench([]))
    assert parameter.tolist() == [1, 1]
    assert timing.prepared
    assert timing.prepared.call() == first


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (lambda p: p.mul_(float("inf")), "no longer finite"),
        (lambda p: p.add_(0), "no parameter changed"),
    ],
)
@pytest.mark.parametrize("epochs", [False, True])
def test_wrong_parameters_afterwards_fail_the_record(
    rule: Rule, value: Callable[[torch.Tensor], object], why: str, epochs: bool
) -> None:
    good = variant(counter(lambda p: p.add_(1)), "good")
    measure = partial(time_epochs, num_epochs=2) if epochs else partial(time_rounds, rule=rule)
    wrong, fine = (timing.record() for timing in measure([variant(counter(value)), good], devices=[]))
    assert (wrong.status, fine.status) == ("failed", "ok")
    assert why in wrong.note


def test_work_that_stops_updating_while_it_is_timed_fails(rule: Rule) -> None:
    calls = 0

    def sometimes(parameter: torch.Tensor) -> None:
        nonlocal calls
        calls += 1
        if calls != 5:
            parameter.add_(1)

    (timing,) = time_rounds([variant(counter(sometimes))], devices=[], rule=rule)
    assert "updates of each parameter expected" in timing.failure


def test_variants_that_share_parameters_share_their_updates(rule: Rule) -> None:
    subject = counter(lambda p: p.add_(1))
    timings = time_rounds([variant(subject, "a"), variant(subject, "b")], devices=[], rule=rule)
    assert [timing.failure for timing in timings] == ["", ""]


def test_what_must_hold_afterwards_is_checked_afterwards(rule: Rule) -> None:
    apart = Check(name="replicas", dtype="float32", difference=1, tolerance=0)
    (timing,) = time_rounds(
        [variant(Subject(work=lambda: None, prove=lambda: [PASSED], after=lambda: [apart]))], devices=[], rule=rule
    )
    assert "replicas: differs by 1" in timing.failure


def test_ranks_that_no_longer_agree_fail_the_record(rule: Rule) -> None:
    def maximum(values: Sequence[float]) -> list[float]:
        """The other rank's checksum is 5."""
        return [max(values[0], 5), max(values[1], -5)] if len(values) == 2 and values[0] == -values[1] else [*values]

    here = {"leads": True, "alone": False, "spans_nodes": False, "failed": {}, "begin": bool}
    ranks: Any = SimpleNamespace(**here, barrier=lambda: None, maximum=maximum)
    subject = Subject(work=lambda: None, prove=lambda: [PASSED], agreeing=lambda: [torch.ones(3)])
    (timing,) = time_rounds([variant(subject)], devices=[], rule=rule, ranks=ranks)
    assert "ranks' parameters are no longer the same" in timing.failure


@pytest.mark.parametrize("fails_at", [1, 4])  # as it is counted, or in a block
def test_memory_that_runs_out_in_one_variant_leaves_the_others_sharing_its_parameters_alone(
    rule: Rule, fails_at: int
) -> None:
    parameter, calls = torch.ones(4, requires_grad=True), [0]

    def step(parts: int) -> None:
        """Each part's gradient is added up, and then used."""
        for _ in range(parts):
            parameter.sum().backward()  # type: ignore[no-untyped-call]
            calls[0] += parts > 1
            if parts > 1 and calls[0] == fails_at:
                raise MemoryError("2 GiB")
        assert parameter.grad is not None
        grad, parameter.grad = parameter.grad, None
        with torch.no_grad():
            parameter.sub_(0.001 * grad / parts)

    def proof() -> list[Check]:
        before = parameter.detach().clone()
        step(1)
        difference = float((before - 0.001 - parameter.detach()).abs().max())
        return [Check(name="one step", dtype="float32", difference=difference, tolerance=1e-6)]

    def build(parts: int) -> Subject:
        return Subject(work=partial(step, parts), prove=proof, expected={"updates": 1}, state=lambda: [parameter])

    two = [Variant(name=str(parts), case={"parts": parts}, build=build, timed_at=parts) for parts in (2, 1)]
    failed, fine = time_rounds(two, devices=[], rule=rule)
    assert (failed.reason, failed.failure) == (Reason.OUT_OF_MEMORY, "2 GiB")
    assert not fine.failure
    assert fine.completion


def test_every_rank_compares_checksums_even_if_its_own_state_is_wrong(rule: Rule) -> None:
    """A rank that left the comparison out would leave the others waiting."""
    asked: list[int] = []

    class Counted:
        leads, alone, spans_nodes = True, False, False
        failed: dict[str, Any] = {}  # noqa: RUF012

        def begin(self, name: str) -> None: ...

        def barrier(self) -> None: ...

        def maximum(self, values: Sequence[float]) -> list[float]:
            asked.append(len(values))
            return list(values)

    fine, wrong = counter(lambda p: p.mul_(0.999)), counter(lambda p: p.mul_(0.999))
    counts = []
    for subject in (fine, wrong):
        asked.clear()
        timing = prepared([variant(subject)], Bench([], Counted()))[0]
        timing.completion.append(1.0)
        if subject is wrong:
            with torch.no_grad():
                next(iter(subject.state())).fill_(float("nan"))
        before = len(asked)
        fail_wrong([timing], Bench([], Counted()))
        counts.append(asked[before:])
    assert counts[0] == counts[1]


def test_what_was_proven_and_counted_is_recorded_with_the_time_alone(rule: Rule) -> None:
    (timing,) = time_rounds([variant(counter(lambda parameter: parameter.add_(1)))], devices=[], rule=rule)
    time, enqueue = timing.record(), timing.enqueue_record()
    assert [check.name for check in time.checks] == ["stand-in"]
    assert [(count.name, count.counted, count.expected) for count in time.work] == [("updates", 1, 1)]
    assert (enqueue.checks, enqueue.work) == ([], [])
    assert len(enqueue.samples[0]) == len(time.samples[0])
