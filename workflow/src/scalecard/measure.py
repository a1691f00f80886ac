"""How time is taken: shuffled, interleaved rounds over the variants to be compared, until they are told apart.

One sample is a block of calls, about `block_seconds` long, and the wait for every device used. Each round measures
every variant once, in shuffled order, so that drift of a busy machine hits all of them alike. Rounds stop when the
95 % interval of the median log-ratio to the first variant is narrow enough, or at a limit; the reason is recorded.

This is the only module that touches clocks. Times are seconds.
"""

import math
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field

from scalecard import failures, progress, stats, telemetry
from scalecard.timing import Timing

Work = Callable[[], object]
Clock = Callable[[], int]
Count = Annotated[int, Field(ge=2)]
Seconds = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """When to warm up and when to stop; the values are in config.yaml under `measure`."""

    warmup_seconds: Seconds
    block_seconds: Seconds
    min_rounds: Count
    max_rounds: Count
    min_seconds: Seconds
    max_seconds: Annotated[float, Field(gt=0)]
    processes: Annotated[int, Field(ge=1)]
    precision: Annotated[float, Field(gt=0, lt=1)]

    def __post_init__(self) -> None:
        if self.max_rounds < self.min_rounds:
            raise ValueError(f"measure.max_rounds = {self.max_rounds}: must be at least min_rounds = {self.min_rounds}")


class Synchronised(Protocol):
    """Anything whose queued work can be waited for."""

    def synchronize(self) -> None: ...


class Ranks(Protocol):
    """What timing needs of the other processes: to start together, and to agree on the slowest.

    One of them leads: it watches the machine's state for all.
    """

    @property
    def leads(self) -> bool: ...

    @property
    def spans_nodes(self) -> bool: ...

    def barrier(self) -> None: ...

    def maximum(self, values: Sequence[float]) -> list[float]: ...


class _Alone:
    leads = True
    spans_nodes = False

    def barrier(self) -> None:
        pass

    def maximum(self, values: Sequence[float]) -> list[float]:
        return list(values)


ALONE: Ranks = _Alone()


def rounds(
    variants: Mapping[str, Work],
    *,
    devices: Sequence[Synchronised],
    rule: Rule,
    ranks: Ranks = ALONE,
    clock: Clock = time.perf_counter_ns,
) -> dict[str, Timing]:
    """Time every variant; the first one is the baseline that the others are compared with.

    A variant that runs out of memory is dropped, its Timing says why, and the others go on. With `ranks` a sample is
    the slowest rank's, and every rank sees the same samples, so all stop in the same round; one that alone runs out of
    memory leaves the others waiting, and is lost like a killed one. Where a GPU was slowed down by heat or by its power
    supply meanwhile, everything is measured once more, and the telemetry says so.
    """
    bench = _Bench(devices, ranks, clock)
    timings, slowed = _measure(variants, bench, rule)
    if slowed:
        progress.say(f"measuring once more: {slowed}")
        timings, _ = _measure(variants, bench, rule)
        for timing in timings.values():
            timing.state["measured_again"] = slowed
    return timings


def _measure(variants: Mapping[str, Work], bench: "_Bench", rule: Rule) -> tuple[dict[str, Timing], str]:
    """The timings, and what slowed a GPU down meanwhile (the same on every rank)."""
    rounds_id = uuid.uuid4().hex[:8]
    timings = {name: Timing(rounds_id=rounds_id) for name in variants}
    for name, work in variants.items():
        progress.detail(f"warming up {name}")
        with failures.out_of_memory(timings[name].fail):
            timings[name].iterations = bench.warm_up(work, rule)
    with telemetry.watching(bench.ranks.leads) as watch:
        reason = _run_rounds(variants, timings, bench, rule, watch)
    for timing in timings.values():
        timing.stopped, timing.state = reason, watch.summary() if watch else {}
    return timings, bench.agreed_slowdown(watch)


def _run_rounds(
    variants: Mapping[str, Work],
    timings: dict[str, Timing],
    bench: "_Bench",
    rule: Rule,
    watch: telemetry.Watch | None,
) -> str:
    """Shuffled rounds until a reason to stop, which is returned."""
    shuffle, started, next_check = random.Random(0), bench.clock(), rule.min_rounds
    while True:
        alive = [name for name in variants if not timings[name].failure]
        if not alive:
            return ""
        for name in shuffle.sample(alive, len(alive)):
            with failures.out_of_memory(timings[name].fail):
                bench.sample(variants[name], timings[name], watch)
        (elapsed,) = bench.ranks.maximum([(bench.clock() - started) / 1e9])
        alive = [name for name in alive if not timings[name].failure]
        if not alive:
            return ""
        done = len(timings[alive[0]].completion)
        reason = _limit(done, elapsed, rule, len(alive))
        left = rule.max_seconds * len(alive) - elapsed
        progress.detail(
            f"round {done}" + (f", at most {left:.0f} s more" if left > 0 else ", until it has an interval")
        )
        if not reason and done >= next_check:
            next_check = math.ceil(done * 1.25)
            reason = _precise([timings[name].completion for name in alive], elapsed, rule)
        if reason:
            return reason


def _limit(done: int, elapsed: float, rule: Rule, num_variants: int) -> str:
    if done >= rule.max_rounds:
        return f"{rule.max_rounds} rounds"
    limit = rule.max_seconds * num_variants
    # Below six rounds there is no interval: slow work gets up to three times as long to have one.
    spent = elapsed >= limit and (done >= stats.FEWEST or elapsed >= 3 * limit)
    return f"{rule.max_seconds:g} s a variant" if done >= 2 and spent else ""


def _precise(samples: Sequence[Sequence[float]], elapsed: float, rule: Rule) -> str:
    """Whether every variant's median log-ratio to the first is known to the precision asked for."""
    if elapsed < rule.min_seconds:
        return ""
    base, *others = samples
    logs = [[math.log(a / b) for a, b in zip(other, base, strict=True)] for other in others]
    for values in logs or [[math.log(s) for s in base]]:
        interval = stats.median_interval(values)
        if interval is None or interval.half_width > rule.precision:
            return ""
    return f"interval within {rule.precision:.0%}"


@dataclass
class _Bench:
    devices: Sequence[Synchronised]
    ranks: Ranks
    clock: Clock

    def block(self, work: Work, iterations: int) -> tuple[float, float]:
        """Seconds a call until all are enqueued, and until every device is done."""
        self.synchronize()
        self.ranks.barrier()
        start = self.clock()
        for _ in range(iterations):
            kept = work()  # keeps the last result alive until it is complete
        enqueued = self.clock()
        self.synchronize()
        end = self.clock()
        del kept
        enqueue, completion = self.ranks.maximum([(enqueued - start) / 1e9, (end - start) / 1e9])
        return enqueue / iterations, completion / iterations

    def sample(self, work: Work, timing: Timing, watch: telemetry.Watch | None) -> None:
        """One block of a variant into its timing; the energy counter is read outside the timed region."""
        counted = watch if watch and not self.ranks.spans_nodes else None  # it sees the GPUs of its own node only
        before = counted.energy() if counted else None
        enqueue, completion = self.block(work, timing.iterations)
        after = counted.energy() if counted else None
        timing.enqueue.append(enqueue)
        timing.completion.append(completion)
        if before is not None and after is not None:
            timing.joules = (timing.joules or 0.0) + after - before

    def agreed_slowdown(self, watch: telemetry.Watch | None) -> str:
        """What slowed a GPU down, on every rank where the leading one saw it."""
        seen = "; ".join(watch.slowdowns) if watch else ""
        (slowed,) = self.ranks.maximum([float(bool(seen))])
        return seen or ("a GPU was slowed down" if slowed else "")

    def warm_up(self, work: Work, rule: Rule) -> int:
        """Run until warm, and return how many calls make a block."""
        spent, last = 0.0, math.inf
        while True:
            _, seconds = self.block(work, 1)
            spent, last = spent + seconds, min(last, seconds)
            if spent >= rule.warmup_seconds:
                return max(1, round(rule.block_seconds / last)) if last > 0 else 1

    def synchronize(self) -> None:
        for device in self.devices:
            device.synchronize()


def epochs(
    trainers: Mapping[str, Work],
    *,
    num_epochs: int,
    devices: Sequence[Synchronised],
    after: Callable[[str], None],
    ranks: Ranks = ALONE,
) -> dict[str, Timing]:
    """Time every epoch of every trainer, dropping none; the trainers take turns in shuffled order.

    `after(name)` runs, untimed, after each epoch: the place to test accuracy. Where a GPU was slowed down meanwhile, as
    many further epochs are timed instead; the accuracies stay those of the first.
    """
    bench = _Bench(devices, ranks, time.perf_counter_ns)
    timings, slowed = _epochs(trainers, num_epochs, bench, after)
    if slowed:
        progress.say(f"timing as many epochs once more: {slowed}")
        timings, _ = _epochs(trainers, num_epochs, bench, lambda name: None)
        for timing in timings.values():
            timing.state["measured_again"] = slowed
    return timings


def _epochs(
    trainers: Mapping[str, Work], num_epochs: int, bench: _Bench, after: Callable[[str], None]
) -> tuple[dict[str, Timing], str]:
    shuffle, rounds_id = random.Random(0), uuid.uuid4().hex[:8]
    timings = {name: Timing(rounds_id=rounds_id, stopped=f"{num_epochs} epochs") for name in trainers}
    turns = [name for _ in range(num_epochs) for name in shuffle.sample(list(trainers), len(trainers))]
    with telemetry.watching(bench.ranks.leads) as watch:
        for name in progress.cases(
            turns, label=lambda name: f"epoch {len(timings[name].completion) + 1} of {num_epochs}, {name}"
        ):
            bench.sample(trainers[name], timings[name], watch)
            after(name)
    for timing in timings.values():
        timing.state = watch.summary() if watch else {}
    return timings, bench.agreed_slowdown(watch)
