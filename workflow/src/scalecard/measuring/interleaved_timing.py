"""Variants that are compared take turns in shuffled order, so that drift of a busy machine affects all of them alike.

In rounds, until the comparison is precise enough (stopping_rule.py says why they stopped): one sample is a block of
calls, about `block_seconds` long, plus the wait for every device used. Or epoch by epoch: these are few and long, so
every one is timed and kept. The energy of a call is taken in the epochs themselves, or in a window after the rounds:
many counters move only about every 100 ms, so less than a second is not a measurement. Source: Yang, Adamek, Armour,
Part-time Power Measurements (2024), arXiv:2312.02741.
"""

import math
import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

from scalecard import progress
from scalecard.measuring import shared_decisions, telemetry
from scalecard.measuring.case_variant import Timing, Variant
from scalecard.measuring.prepare import caught, fail_wrong, prepared
from scalecard.measuring.shared_decisions import ALONE, Ranks
from scalecard.measuring.stopping_rule import OVER, Decision, Rule, budget_left, budget_over
from scalecard.measuring.telemetry import Watch
from scalecard.measuring.timer import Bench, Clock, Synchronised
from scalecard.records.record import Record
from scalecard.time_spent import Activity, spent_on

IN_VAIN = f"{shared_decisions.THIS_RUN}slowed-down-once-more"
WINDOW = 1.0  # seconds in which energy is read
NO_COUNTER = "no counter on every GPU"
OTHER_NODES = "the GPUs of other nodes are not seen from here"
TOO_SHORT = f"took less than the {WINDOW:g} s that the GPUs' counters need"


def time_rounds(
    variants: Sequence[Variant],
    *,
    devices: Sequence[Synchronised],
    rule: Rule,
    ranks: Ranks = ALONE,
    clock: Clock = time.perf_counter_ns,
    energy: bool = False,
    at_once: bool = False,
) -> list[Timing]:
    """Prove every variant, then time all in shuffled rounds; the others are compared with the first one given.

    A variant that runs out of memory, is not proven, or does not do the work that it should is dropped, its Timing says
    why, and the others go on; so is one whose parameters are wrong once timing is over, and one whose GPU has failed.
    With `ranks` a sample is the slowest rank's, and every rank sees the same samples, so all stop in the same round. If
    only one rank fails, its error ends the launch: the others would wait for it in vain. If heat or the power supply
    slowed a GPU down meanwhile, everything is measured once more, and the telemetry says so, unless that was in vain
    before in this run. With `energy`, every one that is metered runs for another second in which nothing but the GPUs'
    energy is measured. With `at_once`, all variants of a round, each of a device of its own, run side by side, and each
    takes its device's own time.
    """
    bench = Bench(devices, ranks, clock)

    @spent_on(Activity.TIMED)
    def measure(timings: Sequence[Timing], watch: Watch | None) -> None:
        reason = _run_rounds(timings, bench, rule, at_once=at_once)
        meter = Meter(bench, watch) if energy else None
        for timing in timings:
            timing.stopped = reason
            if meter and timing.variant.metered:
                progress.detail(f"energy of {timing.variant.name}")
                meter.pass_over(timing)

    warm_up = partial(_warm_up, bench=bench, rule=rule)
    return _timed(variants, bench, measure, again="measuring once more", warm_up=warm_up)


def round_records(
    variants: Sequence[Variant],
    metric: str = "time",
    *,
    devices: Sequence[Synchronised],
    rule: Rule,
    ranks: Ranks = ALONE,
    energy: bool = False,
    at_once: bool = False,
) -> Iterator[Record]:
    """The time of each variant, by time_rounds()."""
    for timing in time_rounds(variants, devices=devices, rule=rule, ranks=ranks, energy=energy, at_once=at_once):
        yield timing.record(metric)


def time_epochs(
    variants: Sequence[Variant], *, num_epochs: int, devices: Sequence[Synchronised], ranks: Ranks = ALONE
) -> list[Timing]:
    """Prove every variant, then time every epoch of it, dropping none; they take turns in shuffled order.

    They are warm, because one epoch was run to count what it does. The accuracy is taken after each epoch, untimed. If
    a GPU was slowed down meanwhile, as many further epochs are timed instead, unless that was in vain before in this
    run; the accuracies remain those of the first epochs. If the time is over, further epochs are left out. What fails
    is dropped as in time_rounds().
    """
    bench = Bench(devices, ranks)
    return _timed(variants, bench, partial(_run_epochs, bench, num_epochs), again="timing as many epochs again")


def epoch_records(
    variants: Sequence[Variant],
    *,
    num_epochs: int,
    devices: Sequence[Synchronised],
    ranks: Ranks = ALONE,
    scored: bool = True,
) -> Iterator[Record]:
    """The time of every epoch of each variant, by time_epochs(), and, if `scored`, the accuracy after it."""
    for timing in time_epochs(variants, num_epochs=num_epochs, devices=devices, ranks=ranks):
        yield timing.record("epoch_time")
        if scored:
            yield timing.accuracy_record()


def _timed(
    variants: Sequence[Variant],
    bench: Bench,
    measure: Callable[[Sequence[Timing], Watch | None], None],
    *,
    again: str,
    warm_up: Callable[[Sequence[Timing]], object] = tuple,
) -> list[Timing]:
    """Proven, and measured while the GPUs are watched: twice if they were slowed down, also what failed meanwhile."""
    ready = prepared(variants, bench)

    def once() -> tuple[list[Timing], str]:
        rounds_id = uuid.uuid4().hex[:8]
        timings = [timing.again(rounds_id) for timing in ready]
        warm_up(timings)
        with telemetry.watching(bench.ranks.leads) as watch:
            measure(timings, watch)
        for timing in timings:
            timing.state = watch.summary() if watch else None
        return timings, bench.agreed_slowdown(watch)

    timings, slowed = once()
    if worth_repeating(slowed, bench):
        progress.say(f"{again}: {slowed}")
        first, (timings, once_more) = timings, once()
        if once_more and bench.ranks.leads:
            shared_decisions.decided(IN_VAIN, lambda: once_more)
            progress.say(f"slowed down again ({once_more}): from now on nothing is measured once more")
        for timing, before in zip(timings, first, strict=True):
            timing.measured_again, timing.accuracies = slowed, before.accuracies or timing.accuracies
    fail_wrong(timings, bench)
    return timings


def worth_repeating(slowed: str, bench: Bench) -> bool:
    """Whether to measure a group once more that was `slowed` by this, or by nothing if it is ''."""
    if not slowed:
        return False
    (in_vain,) = bench.ranks.maximum([float(bench.ranks.leads and shared_decisions.is_decided(IN_VAIN))])
    return not in_vain


@spent_on(Activity.WARM_UP)
def _warm_up(timings: Sequence[Timing], bench: Bench, rule: Rule) -> None:
    for timing in timings:
        if timing.able:
            progress.detail(f"warming up {timing.variant.name}")
            with caught(on_failure=timing.fail, alone=bench.ranks.alone):
                turns, place = timing.able.subject.turns, timing.variant.place
                calls = bench.warm_up(timing.able.call, rule, place, turns)
                timing.iterations = -(-calls // turns)


def _run_rounds(timings: Sequence[Timing], bench: Bench, rule: Rule, *, at_once: bool) -> str:
    """Run shuffled rounds until there is a reason to stop, and return it."""
    shuffle, decision, told, started = random.Random(0), Decision(rule), 0.0, bench.clock()
    while alive := [timing for timing in timings if timing.able]:
        if at_once:
            bench.sample_at_once(alive)
        else:
            for timing in shuffle.sample(alive, len(alive)):
                with caught(on_failure=timing.fail, alone=bench.ranks.alone):
                    bench.sample(timing)
        late = bench.ranks.leads and budget_left() <= 0
        elapsed, over = bench.ranks.maximum([(bench.clock() - started) / 1e9, float(late)])
        samples = [timing.completion for timing in alive if not timing.failure]
        if not samples:
            break
        if elapsed >= told:  # not in every short round
            told, left = elapsed + 1, decision.longest * len(samples) - elapsed
            more = f"at most {left:.0f} s more" if left > 0 else "until it has an interval"
            progress.detail(f"round {len(samples[0])}, {more}")
        if reason := decision.reason(samples, elapsed, over=bool(over)):
            return reason
    return ""


def _run_epochs(bench: Bench, num_epochs: int, timings: Sequence[Timing], watch: Watch | None) -> None:
    shuffle, meter = random.Random(0), Meter(bench, watch)
    alive = [timing for timing in timings if timing.able]
    turns = [timing for _ in range(num_epochs) for timing in shuffle.sample(alive, len(alive))]

    def label(timing: Timing) -> str:
        return f"epoch {len(timing.completion) + 1} of {num_epochs}, {timing.variant.name}"

    for timing in progress.cases(turns, label=label):
        had = {len(one.completion) for one in alive if not one.failure}
        whole_turns = len(had) == 1 and had != {0}
        if whole_turns and budget_over(bench.ranks):
            break
        with caught(on_failure=timing.fail, alone=bench.ranks.alone):
            if timing.able:
                with spent_on(Activity.TIMED):
                    meter.add(timing, partial(bench.sample, timing), 1)
                if test := timing.able.subject.test:
                    timing.accuracies.append(test())
    for timing in timings:
        done = len(timing.completion)
        timing.stopped = f"{done} epochs" if done == num_epochs else f"{done} of {num_epochs} epochs: {OVER}"


class Meter:
    """The energy counters before and after a window; which ranks can read them is agreed upon once."""

    def __init__(self, bench: Bench, watch: Watch | None) -> None:
        self._bench, self._watch = bench, watch
        (counted,) = bench.ranks.maximum([float(watch is not None and watch.energy() is not None)])
        self.reason = OTHER_NODES if bench.ranks.spans_nodes else "" if counted else NO_COUNTER

    def add(self, timing: Timing, run: Callable[[], float], calls: int) -> None:
        """Run a window of so many calls, which returns its seconds, and add its joules to the timing."""
        before = self._joules()
        seconds = run()
        after = self._joules()
        timing.no_joules = self.reason or ("" if seconds >= WINDOW else TOO_SHORT)
        if not timing.no_joules and before is not None and after is not None:
            timing.joules = (timing.joules or 0.0) + after - before
            timing.metered += calls

    def pass_over(self, timing: Timing) -> None:
        """A window for this alone, once its samples say how many calls that takes; the same number on every rank."""
        timing.no_joules = self.reason
        if self.reason or not timing.able:
            return
        calls, work = math.ceil(1.1 * WINDOW / median(timing.completion)), timing.able.call
        calls += -calls % timing.able.subject.turns  # over whole cycles of its batches
        with caught(on_failure=timing.fail, alone=self._bench.ranks.alone):
            self.add(timing, lambda: calls * self._bench.block(work, calls).completion, calls)

    def _joules(self) -> float | None:
        return None if self.reason or not self._watch else self._watch.energy()
