"""How time is taken: shuffled, interleaved rounds over the variants to be compared, until they are told apart.

One sample is a block of calls, about `block_seconds` long, and the wait for every device used. Each round measures
every variant once, in shuffled order, so that drift of a busy machine hits all of them alike. Rounds stop when the
95 % interval of the median log-ratio to the first variant is narrow enough, or at a limit; the reason is recorded.

This is the only module that touches clocks. Times are seconds.
"""

import contextlib
import math
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from pydantic import Field

from scalecard import progress, stats
from scalecard.schema import Case, Check, Record

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
    precision: Annotated[float, Field(gt=0, lt=1)]

    def __post_init__(self) -> None:
        if self.max_rounds < self.min_rounds:
            raise ValueError(f"measure.max_rounds = {self.max_rounds}: must be at least min_rounds = {self.min_rounds}")


class Synchronised(Protocol):
    """Anything whose queued work can be waited for."""

    def synchronize(self) -> None: ...


class Ranks(Protocol):
    """What timing needs of the other processes: to start together, and to agree on the slowest."""

    def barrier(self) -> None: ...

    def maximum(self, values: Sequence[float]) -> list[float]: ...


class _Alone:
    def barrier(self) -> None:
        pass

    def maximum(self, values: Sequence[float]) -> list[float]:
        return list(values)


ALONE: Ranks = _Alone()


@dataclass(kw_only=True)
class Timing:
    """The samples of one variant, one a round: seconds a call until enqueued, and until complete."""

    rounds_id: str
    iterations: int = 1
    enqueue: list[float] = field(default_factory=list)
    completion: list[float] = field(default_factory=list)
    stopped: str = ""
    failure: str = ""

    def record(
        self, case: Case, *, metric: str = "time", enqueue: bool = False, checks: Sequence[Check] = ()
    ) -> Record:
        """These samples as a record, or a failed record where the variant ran out of memory."""
        if self.failure:
            return Record(case=case, metric=metric, unit="s", status="failed", note=self.failure)
        return Record(
            case=case,
            metric=metric,
            unit="s",
            samples=self.enqueue if enqueue else self.completion,
            checks=list(checks),
            telemetry={"rounds_id": self.rounds_id, "iterations": self.iterations, "stopped": self.stopped},
        )


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
    the slowest rank's, and every rank sees the same samples, so all stop in the same round.
    """
    bench = _Bench(devices, ranks, clock)
    rounds_id = uuid.uuid4().hex[:8]
    timings = {name: Timing(rounds_id=rounds_id) for name in variants}
    for name, work in variants.items():
        progress.detail(f"warming up {name}")
        with _out_of_memory_into(timings[name]):
            timings[name].iterations = bench.warm_up(work, rule)
    shuffle, started, next_check, reason = random.Random(0), clock(), rule.min_rounds, ""
    while not reason:
        alive = [name for name in variants if not timings[name].failure]
        if not alive:
            break
        for name in shuffle.sample(alive, len(alive)):
            timing = timings[name]
            with _out_of_memory_into(timing):
                enqueue, completion = bench.block(variants[name], timing.iterations)
                timing.enqueue.append(enqueue)
                timing.completion.append(completion)
        (elapsed,) = ranks.maximum([(clock() - started) / 1e9])
        done = len(timings[alive[0]].completion)
        reason = _limit(done, elapsed, rule, len(alive))
        progress.detail(f"round {done}, at most {max(0.0, rule.max_seconds * len(alive) - elapsed):.0f} s more")
        if not reason and done >= next_check:
            next_check = math.ceil(done * 1.25)
            reason = _precise([timings[name].completion for name in alive], elapsed, rule)
    for timing in timings.values():
        timing.stopped = reason
    return timings


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


@contextlib.contextmanager
def _out_of_memory_into(timing: Timing) -> Iterator[None]:
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        timing.failure = _out_of_memory(error)
        timing.completion.clear()
        timing.enqueue.clear()


def guarded(records: Iterable[Record], case: Case, *, metric: str = "time") -> Iterator[Record]:
    """The records of one sweep point, or, where preparing it runs out of memory, one failed record that says so."""
    try:
        yield from records
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        yield Record(case=case, metric=metric, unit="s", status="failed", note=_out_of_memory(error))


def _out_of_memory(error: BaseException) -> str:
    return f"out of memory: {(str(error).splitlines() or [''])[0][:200]}"


def is_out_of_memory(error: BaseException) -> bool:
    """torch.OutOfMemoryError is a RuntimeError; the CPU allocator raises a plain one that says 'can't allocate'."""
    text = str(error)
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


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


def clocked(
    work: Callable[[], Any],
    *,
    devices: Sequence[Synchronised],
    ranks: Ranks = ALONE,
    clock: Clock = time.perf_counter_ns,
) -> tuple[Any, float]:
    """The result of one call and its seconds, the wait for every device included: for epochs, which are long."""
    for device in devices:
        device.synchronize()
    ranks.barrier()
    start = clock()
    value = work()
    for device in devices:
        device.synchronize()
    (seconds,) = ranks.maximum([(clock() - start) / 1e9])
    return value, seconds


def epochs(
    trainers: Mapping[str, Work],
    *,
    num_epochs: int,
    devices: Sequence[Synchronised],
    after: Callable[[str], None],
    ranks: Ranks = ALONE,
) -> dict[str, list[float]]:
    """Seconds of every epoch of every trainer, none dropped; the trainers take turns in shuffled order.

    `after(name)` runs, untimed, after each epoch: the place to test accuracy.
    """
    shuffle = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    turns = [name for _ in range(num_epochs) for name in shuffle.sample(list(trainers), len(trainers))]
    for name in progress.cases(turns, label=lambda name: f"epoch {len(seconds[name]) + 1} of {num_epochs}, {name}"):
        _, duration = clocked(trainers[name], devices=devices, ranks=ranks)
        seconds[name].append(duration)
        after(name)
    return seconds
