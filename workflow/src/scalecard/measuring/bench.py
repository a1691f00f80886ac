"""The clock: one block of calls, timed until it is enqueued and until every device and rank is done.

This is the only module that reads clocks around work. Times are in seconds.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from scalecard.measuring.rule import Rule
from scalecard.measuring.telemetry import Watch
from scalecard.measuring.timing import Timing
from scalecard.measuring.variant import Work

Clock = Callable[[], int]


class Synchronised(Protocol):
    """Anything whose queued work can be waited for."""

    def synchronize(self) -> None:
        """Wait for all work submitted so far."""


class Ranks(Protocol):
    """What timing needs from the other processes: to start together, and to agree on the slowest.

    One of them leads: it watches the machine's state for all of them.
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


@dataclass
class Bench:
    """The devices to wait for, the ranks that measure together, and the clock (nanoseconds)."""

    devices: Sequence[Synchronised]
    ranks: Ranks = ALONE
    clock: Clock = time.perf_counter_ns

    def block(self, work: Work, iterations: int) -> tuple[float, float]:
        """Seconds per call until all calls are enqueued, and until every device is done; the slowest rank's."""
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

    def sample(self, timing: Timing, watch: Watch | None) -> None:
        """Add one block to a timing. The energy counter is read outside the timed region."""
        counted = watch if watch and not self.ranks.spans_nodes else None  # it sees the GPUs of its own node only
        before = counted.energy() if counted else None
        assert timing.prepared, "only what was prepared is timed"
        enqueue, completion = self.block(timing.prepared.call, timing.iterations)
        after = counted.energy() if counted else None
        timing.enqueue.append(enqueue)
        timing.completion.append(completion)
        if before is not None and after is not None:
            timing.joules = (timing.joules or 0.0) + after - before

    def warm_up(self, work: Work, rule: Rule) -> int:
        """Call the work until it is warm, and return how many calls make a block."""
        spent, last = 0.0, math.inf
        while True:
            _, seconds = self.block(work, 1)
            spent, last = spent + seconds, min(last, seconds)
            if spent >= rule.warmup_seconds:
                return max(1, round(rule.block_seconds / last)) if last > 0 else 1

    def agreed_slowdown(self, watch: Watch | None) -> str:
        """What slowed a GPU down, on every rank if the leading one saw it; else ''."""
        seen = "; ".join(watch.slowdowns) if watch else ""
        (slowed,) = self.ranks.maximum([float(bool(seen))])
        return seen or ("a GPU was slowed down" if slowed else "")

    def synchronize(self) -> None:
        """Wait for every device."""
        for device in self.devices:
            device.synchronize()
