"""Epochs: few and long, so every one is timed and kept."""

import random
import uuid
from collections.abc import Iterator, Sequence
from functools import partial

from scalecard import progress
from scalecard.measuring import interleaved_timing, telemetry
from scalecard.measuring.case_variant import Timing, Variant
from scalecard.measuring.energy import Meter
from scalecard.measuring.failures import caught
from scalecard.measuring.prepare import fail_wrong, prepared
from scalecard.measuring.shared_decisions import ALONE, Ranks
from scalecard.measuring.stopping_rule import OVER, budget_over
from scalecard.measuring.timer import Bench, Synchronised
from scalecard.records.record import Record
from scalecard.time_spent import Activity, spent_on


def time_epochs(
    variants: Sequence[Variant], *, num_epochs: int, devices: Sequence[Synchronised], ranks: Ranks = ALONE
) -> list[Timing]:
    """Prove every variant, then time every epoch of it, dropping none; they take turns in shuffled order.

    They are warm, because one epoch was run to count what it does. The accuracy is taken after each epoch, untimed. If
    a GPU was slowed down meanwhile, as many further epochs are timed instead, unless that was in vain before in this
    run; the accuracies remain those of the first epochs. If the time is over, further epochs are left out. What fails
    is dropped as in interleaved_timing.py.
    """
    bench = Bench(devices, ranks)
    timings, slowed = _run_epochs(prepared(variants, bench), num_epochs, bench)
    if interleaved_timing.worth_repeating(slowed, bench):
        progress.say(f"timing as many epochs again: {slowed}")
        first = timings
        timings, again = _run_epochs(first, num_epochs, bench)
        interleaved_timing.remember_slowdown(again, bench)
        for timing, before in zip(timings, first, strict=True):
            timing.measured_again, timing.accuracies = slowed, before.accuracies
    fail_wrong(timings, bench)
    return timings


def epoch_records(
    variants: Sequence[Variant], *, num_epochs: int, devices: Sequence[Synchronised], ranks: Ranks = ALONE
) -> Iterator[Record]:
    """The time of every epoch of each variant, and the accuracy after it."""
    for timing in time_epochs(variants, num_epochs=num_epochs, devices=devices, ranks=ranks):
        yield timing.record("epoch_time")
        yield timing.accuracy_record()


def _run_epochs(ready: Sequence[Timing], num_epochs: int, bench: Bench) -> tuple[list[Timing], str]:
    """The timings, and what slowed a GPU down meanwhile."""
    shuffle, rounds_id = random.Random(0), uuid.uuid4().hex[:8]
    timings = [timing.again(rounds_id) for timing in ready]
    able = [timing for timing in timings if timing.prepared and not timing.failure]
    turns = [timing for _ in range(num_epochs) for timing in shuffle.sample(able, len(able))]

    def label(timing: Timing) -> str:
        return f"epoch {len(timing.completion) + 1} of {num_epochs}, {timing.variant.name}"

    with telemetry.watching(bench.ranks.leads) as watch:
        meter = Meter(bench, watch)
        for timing in progress.cases(turns, label=label):
            had = {len(one.completion) for one in able if not one.failure}
            whole_turns = len(had) == 1 and had != {0}
            if whole_turns and budget_over(bench.ranks):
                break
            with caught(on_failure=timing.fail, alone=bench.ranks.alone):
                if timing.prepared and not timing.failure:
                    with spent_on(Activity.TIMED):
                        meter.add(timing, partial(bench.sample, timing), 1)
                    if test := timing.prepared.subject.test:
                        timing.accuracies.append(test())
    for timing in timings:
        done = len(timing.completion)
        timing.stopped = f"{done} epochs" if done == num_epochs else f"{done} of {num_epochs} epochs: {OVER}"
        timing.state = watch.summary() if watch else None
    return timings, bench.agreed_slowdown(watch)
