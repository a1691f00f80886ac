"""Makes variants ready to be timed: proven, built as timed, checked as such, counted; and checks them afterwards.

What fails costs its own case, and the others are still measured. Too little memory, and a check that failed on all
ranks, are recorded wherever they happen. An error that one rank may have seen alone is recorded only where no other
rank waits for it: otherwise it ends the launch, whose ranks are recorded as failed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch

from scalecard import progress
from scalecard.hardware.failures import DeviceFault, empty_cache, first_line, reason_of
from scalecard.hardware.machine import Machine
from scalecard.measuring.case_variant import Prepared, Subject, Timing, Variant, local
from scalecard.measuring.counting import UPDATES, counted
from scalecard.measuring.proof import ProofFailed, Void, agreed, checksum, refuse_failed
from scalecard.measuring.shared_decisions import Ranks
from scalecard.measuring.stopping_rule import LEFT_OUT, budget_over
from scalecard.measuring.timer import Bench
from scalecard.records.axes import Case
from scalecard.records.journal import measured_once
from scalecard.records.record import Check, Count, Reason, Record, Unit
from scalecard.time_spent import Activity, spent_on


@spent_on(Activity.PROOF)
def prepared(variants: Sequence[Variant], bench: Bench) -> list[Timing]:
    """A Timing of every variant, without samples yet; if the time is over, all are left out instead.

    A variant has failed, on every rank, if it runs out of memory, if a check failed, if a count is not its closed form,
    or if nothing was proven of it.
    """
    assert len({variant.name for variant in variants}) == len(variants), "variant names must be unique"
    if budget_over(bench.ranks):
        return [Timing(variant=variant, left_out=LEFT_OUT) for variant in variants]
    timings = [Timing(variant=variant) for variant in variants]
    for timing in timings:
        named = f"{timing.variant.name}, {timing.variant.case}"  # a launch may have variants of this name of two models
        if before := bench.ranks.failed.get(named):
            timing.fail(*before)
            continue
        bench.ranks.begin(named)
        with caught(on_failure=timing.fail, alone=bench.ranks.alone), bench.naming_faults(timing.variant.place):
            timing.prepared = _prepared(timing.variant, bench)
    bench.ranks.begin("")
    for timing in timings:  # updates count from here on: proving another one changes parameters that variants share
        if timing.prepared:
            timing.prepared.versions = timing.prepared.subject.versions()
    return timings


@spent_on(Activity.PROOF)
def proofs(variants: Sequence[Variant], ranks: Ranks) -> dict[str, list[Check]]:
    """The checks of every variant, by its name, at the settings at which it is not timed; some may have failed."""
    return {
        variant.name: [check for setting in variant.proven_at for check in _proofs(variant, setting, ranks)]
        for variant in variants
    }


# By builder, as long as there is one, and setting.
_proven: WeakKeyDictionary[Callable[[Any], Subject], dict[Any, list[Check]]] = WeakKeyDictionary()


def _proofs(variant: Variant, setting: Any, ranks: Ranks) -> list[Check]:
    """What one builder makes of one setting is proven once, however many variants share it."""
    proven = _proven.setdefault(variant.build, {})
    if setting not in proven:
        proven[setting] = agreed([*variant.build(setting).prove()], ranks)
        empty_cache()  # what was built for it may refer to itself
    return proven[setting]


def _prepared(variant: Variant, bench: Bench) -> Prepared:
    if variant.place and variant.place.fault:
        raise DeviceFault(f"{variant.name} failed before: {variant.place.fault}")
    progress.detail(f"proving {variant.name}")
    checks = [*variant.proven, *proofs([variant], bench.ranks)[variant.name]]
    refuse_failed(checks)
    subject = variant.build(variant.timed_at)
    with _put_back(subject):
        checks += agreed([*subject.prove()], bench.ranks)
        refuse_failed(checks)
        work = counted(subject, partial(bench.synchronize, variant.place))
    if not checks:
        raise ProofFailed(f"{variant.name}: nothing was proven of it, so it is not timed")
    _refuse_deviations(variant.name, work, bench)
    initial = checksum(subject.parameters())
    return Prepared(variant=variant, subject=subject, checks=_worst(checks), work=work, initial=initial)


def _worst(checks: Sequence[Check]) -> list[Check]:
    """Of the checks with one name, the one with the largest difference."""
    worst: dict[tuple[str, str, float], Check] = {}
    for check in checks:
        key = (check.name, check.dtype, check.tolerance)
        worst[key] = max(worst.get(key, check), check, key=lambda one: one.difference)
    return list(worst.values())


@contextmanager
def _put_back(subject: Subject) -> Iterator[None]:
    """Afterwards the state and the order of images are as before, and there are no gradients; also if it fails.

    Meanwhile the state is in the host's memory: the device's is for what is measured.
    """
    saved = [local(tensor).detach().to("cpu", copy=True) for tensor in subject.state()]
    order = subject.order.get_state() if subject.order else None
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(subject.state(), saved, strict=True):
                local(tensor).copy_(value)
                tensor.grad = None
        if subject.order and order is not None:
            subject.order.set_state(order)


def _refuse_deviations(name: str, work: Sequence[Count], bench: Bench) -> None:
    worst = bench.ranks.maximum([float(not count.passed) for count in work]) if work else []
    for count, wrong in zip(work, worst, strict=True):
        if wrong:
            here = f"{count.counted:.15g} counted, {count.expected:.15g} expected"
            raise ProofFailed(f"{name}: {count.name} in one call: {here}; not timed")


def fail_wrong(timings: Sequence[Timing], bench: Bench) -> None:
    """Once timing is over, fail every timing whose work left something wrong; the same ones on every rank.

    Parameters must be finite and must have changed, as often as the calls should have changed them; ranks that must
    agree are compared by a checksum. Variants may share their parameters, and then share the verdict.
    """
    done = [timing.prepared for timing in timings if timing.prepared]
    for timing in timings:
        if timing.able:
            with caught(on_failure=timing.fail, alone=bench.ranks.alone):
                bench.synchronize(timing.variant.place)
                _refuse_wrong_state(timing.able, done, bench)


def _refuse_wrong_state(one: Prepared, everyone: Sequence[Prepared], bench: Bench) -> None:
    words, *_ = [*_wrong(one, everyone), ""]  # all of it, and the checksum too: all ranks do both
    agreeing = checksum(one.subject.agreeing())
    high, low = bench.ranks.maximum([agreeing, -agreeing])
    words = words or ("" if high == -low else f"{one.variant.name}: the ranks' parameters are no longer the same")
    (wrong,) = bench.ranks.maximum([float(bool(words))])
    if wrong:
        raise ProofFailed(words or f"{one.variant.name}: the state of another rank is wrong")


def _wrong(one: Prepared, everyone: Sequence[Prepared]) -> Iterator[str]:
    """What is wrong on this rank."""
    name, now = one.variant.name, one.subject.parameters()
    if not all(bool(local(tensor).isfinite().all()) for tensor in now):
        yield f"{name}: a parameter is no longer finite"
    elif now and checksum(now) == one.initial:
        yield f"{name}: no parameter changed while it was timed"
    elif now:
        sharing = [other for other in everyone if any(tensor is now[0] for tensor in other.subject.parameters()[:1])]
        work = [(other.calls, count) for other in sharing for count in other.work if count.name in UPDATES]
        expected = sum(calls * count.expected for calls, count in work if count.name == "updates")
        seen = one.subject.updates_since(one.versions)
        if work and seen != {expected}:
            yield f"{name}: {expected:g} updates of each parameter expected, {sorted(seen)} counted"
    for check in one.subject.after():
        if not check.passed:
            yield f"{name}: {check.name}: differs by {check.difference:.3g}"


@contextmanager
def caught(*, on_failure: Callable[[str, Reason], object], alone: bool) -> Iterator[None]:
    """Pass what an error says, and the reason, to `on_failure`; let errors through that end the launch.

    `alone`: no other rank takes part.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        reason = reason_of(error)
        on_all = reason in (Reason.OUT_OF_MEMORY, Reason.NOT_PROVEN) and not isinstance(error, Void)
        if not (on_all or (alone and reason is not Reason.ERROR)):
            raise
        note = first_line(error)
        if reason is not Reason.OUT_OF_MEMORY:
            progress.say(f"failed: {reason}: {note}")
        on_failure(note, reason)


def guarded(records: Iterable[Record], case: Case, *, metric: str = "time", unit: Unit = "s") -> Iterator[Record]:
    """The records of one sweep point and, if it runs out of memory or is not proven, one failed record that says so.

    They are a group: what an earlier run kept of it is not measured again.
    """
    return measured_once([case, metric], _guarded(records, case, metric, unit))


def _guarded(records: Iterable[Record], case: Case, metric: str, unit: Unit) -> Iterator[Record]:
    failures: list[tuple[str, Reason]] = []
    with caught(on_failure=lambda *failure: failures.append(failure), alone=False):
        yield from records
    for note, reason in failures:
        yield Record.failed(case, note, reason=reason, metric=metric, unit=unit)


def too_few_devices(case: Case, machine: Machine, *, needed: int = 2, metric: str = "time") -> Iterator[Record]:
    """A skipped record of a case that needs more devices than the machine has."""
    if machine.num_devices < needed:
        note = f"needs {needed} devices, this machine has {machine.num_devices}"
        yield Record.skipped(case, note, metric=metric)
