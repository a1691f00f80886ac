"""Epochs: few and long, so every one is timed and kept."""

import random
import uuid
from collections.abc import Callable, Sequence

from scalecard import progress
from scalecard.measuring import telemetry
from scalecard.measuring.bench import ALONE, Bench, Ranks, Synchronised
from scalecard.measuring.timing import Timing
from scalecard.measuring.variant import Variant


def time_epochs(
    variants: Sequence[Variant],
    *,
    num_epochs: int,
    devices: Sequence[Synchronised],
    after: Callable[[Variant], None],
    ranks: Ranks = ALONE,
) -> list[Timing]:
    """Time every epoch of every variant, dropping none; the variants take turns in shuffled order.

    `after(variant)` runs untimed after each epoch, for example to test accuracy. If a GPU was slowed down meanwhile, as
    many further epochs are timed instead; the accuracies remain those of the first epochs.
    """
    bench = Bench(devices, ranks)
    timings, slowed = _run_epochs(variants, num_epochs, bench, after)
    if slowed:
        progress.say(f"timing as many epochs again: {slowed}")
        timings, _ = _run_epochs(variants, num_epochs, bench, lambda variant: None)
        for timing in timings:
            timing.measured_again = slowed
    return timings


def _run_epochs(
    variants: Sequence[Variant], num_epochs: int, bench: Bench, after: Callable[[Variant], None]
) -> tuple[list[Timing], str]:
    """The timings, and what slowed a GPU down meanwhile."""
    shuffle, rounds_id = random.Random(0), uuid.uuid4().hex[:8]
    stopped = f"{num_epochs} epochs"
    timings = [Timing(variant=variant, rounds_id=rounds_id, stopped=stopped) for variant in variants]
    turns = [timing for _ in range(num_epochs) for timing in shuffle.sample(timings, len(timings))]

    def label(timing: Timing) -> str:
        return f"epoch {len(timing.completion) + 1} of {num_epochs}, {timing.variant.name}"

    with telemetry.watching(bench.ranks.leads) as watch:
        for timing in progress.cases(turns, label=label):
            bench.sample(timing, watch)
            after(timing.variant)
    for timing in timings:
        timing.state = watch.summary() if watch else None
    return timings, bench.agreed_slowdown(watch)
