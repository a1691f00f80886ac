"""Shuffled, interleaved rounds over the variants to compare, until the comparison is precise enough.

One sample is a block of calls, about `block_seconds` long, plus the wait for every device used. Each round measures
every variant once, in shuffled order, so that drift of a busy machine affects all of them alike. The reason why rounds
stopped (stopping_rule.py) is recorded.
"""

import random
import time
import uuid
from collections.abc import Sequence

from scalecard import progress
from scalecard.measuring import shared_decisions, telemetry
from scalecard.measuring.case_variant import Timing, Variant
from scalecard.measuring.energy import Meter
from scalecard.measuring.failures import caught
from scalecard.measuring.prepare import fail_wrong, prepared
from scalecard.measuring.shared_decisions import ALONE, Ranks
from scalecard.measuring.stopping_rule import Decision, Rule, budget_left
from scalecard.measuring.timer import Bench, Clock, Synchronised
from scalecard.time_spent import Activity, spent_on

IN_VAIN = f"{shared_decisions.THIS_RUN}slowed-down-once-more"


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
    """Prove, then time every variant, in the order given; the others are compared with the first one.

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
    ready = prepared(variants, bench)
    timings, slowed = _measure(ready, bench, rule, energy=energy, at_once=at_once)
    if worth_repeating(slowed, bench):
        progress.say(f"measuring once more: {slowed}")
        timings, again = _measure(ready, bench, rule, energy=energy, at_once=at_once)
        remember_slowdown(again, bench)
        for timing in timings:
            timing.measured_again = slowed
    fail_wrong(timings, bench)
    return timings


def _measure(
    ready: Sequence[Timing], bench: Bench, rule: Rule, *, energy: bool, at_once: bool
) -> tuple[list[Timing], str]:
    """The timings, and what slowed a GPU down meanwhile (the same on every rank)."""
    rounds_id = uuid.uuid4().hex[:8]
    timings = [timing.again(rounds_id) for timing in ready]
    with spent_on(Activity.WARM_UP):
        for timing in timings:
            if timing.prepared and not timing.failure:
                progress.detail(f"warming up {timing.variant.name}")
                with caught(on_failure=timing.fail, alone=bench.ranks.alone):
                    turns, place = timing.prepared.subject.turns, timing.variant.place
                    calls = bench.warm_up(timing.prepared.call, rule, place, turns)
                    timing.iterations = -(-calls // turns)
    with telemetry.watching(bench.ranks.leads) as watch, spent_on(Activity.TIMED):
        reason = _run_rounds(timings, bench, rule, at_once=at_once)
        if energy:
            meter = Meter(bench, watch)
            for timing in timings:
                if timing.variant.metered:
                    progress.detail(f"energy of {timing.variant.name}")
                    meter.pass_over(timing)
    for timing in timings:
        timing.stopped, timing.state = reason, watch.summary() if watch else None
    return timings, bench.agreed_slowdown(watch)


def _run_rounds(timings: Sequence[Timing], bench: Bench, rule: Rule, *, at_once: bool) -> str:
    """Run shuffled rounds until there is a reason to stop, and return it."""
    shuffle, decision, told, started = random.Random(0), Decision(rule), 0.0, bench.clock()
    while alive := [timing for timing in timings if timing.prepared and not timing.failure]:
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


def worth_repeating(slowed: str, bench: Bench) -> bool:
    """Whether to measure a group once more that was `slowed` by this, or by nothing if it is ''."""
    if not slowed:
        return False
    (in_vain,) = bench.ranks.maximum([float(bench.ranks.leads and shared_decisions.is_decided(IN_VAIN))])
    return not in_vain


def remember_slowdown(slowed: str, bench: Bench) -> None:
    """Remember, and say, if a repeated group was slowed down as well."""
    if slowed and bench.ranks.leads:
        shared_decisions.decided(IN_VAIN, lambda: slowed)
        progress.say(f"slowed down again ({slowed}): from now on nothing is measured once more")
