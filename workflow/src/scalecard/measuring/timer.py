"""The clock: one block of calls, timed until it is enqueued and until every device and rank is done.

This is the only module that reads clocks around work. Times are in seconds.

Did the clock stop before a device was done? A `synchronize()` that waits for nothing, or for the wrong stream, leaves
no trace in the samples: they are only too small. So each device marks in its own queue where a block begins and ends.
Both marks are set while the clock runs, so however long a thread waits for its turn on a busy machine, the time between
them is never longer than the clock's, unless the clock was stopped too early.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import NamedTuple, Protocol

from scalecard.hardware.device_timestamps import Marking, Place
from scalecard.hardware.failures import DeviceFault, reason_of
from scalecard.measuring.case_variant import Timing, Work
from scalecard.measuring.shared_decisions import ALONE, Ranks
from scalecard.measuring.stopping_rule import Rule
from scalecard.measuring.telemetry import Watch
from scalecard.records.record import Reason

Clock = Callable[[], int]
CLOSE, ADJUSTMENTS = 0.8, 3  # of the block's length that is asked for, and how often it is sought at most
# The two clocks may disagree by so much: a GPU's runs at a rate of its own, and times events to half a microsecond.
SHARE, SECONDS = 0.05, 50e-6


class NotSynchronised(RuntimeError):
    """The clock was stopped before a device was done: the times would be too short."""


class Synchronised(Protocol):
    """Anything whose queued work can be waited for."""

    def synchronize(self) -> None:
        """Wait for all work submitted so far."""


class Block(NamedTuple):
    """Seconds per call until all are enqueued, and until every device is done, of the slowest rank; and our own."""

    enqueue: float
    completion: float
    own: float


@dataclass
class Bench:
    """The devices to wait for, the ranks that measure together, and the clock (nanoseconds)."""

    devices: Sequence[Synchronised]
    ranks: Ranks = ALONE
    clock: Clock = time.perf_counter_ns

    def block(self, work: Work, iterations: int, *, compared: bool = False, place: Place | None = None) -> Block:
        """One block of so many calls, which all ranks start together; `place` as in synchronize().

        If `compared`, NotSynchronised is raised on every rank if a device's own time says that it was not done.
        """
        self.synchronize(place)
        self.ranks.barrier()
        with self.naming_faults(place):
            asked = ([place] if place else self._able()) if compared else []
            marking = [device for device in asked if isinstance(device, Marking)]
            marked = self.clock()
            before = [device.mark(self.clock) for device in marking]
            start = self.clock()
            for _ in range(iterations):
                kept = work()  # keeps the last result alive until it is complete
            enqueued = self.clock()
            after = [device.mark(self.clock) for device in marking]
        self.synchronize(place)
        end = self.clock()
        del kept
        if compared:
            marks = zip(marking, before, after, strict=True)
            self._refuse_overrun([(on, then.seconds_since(first)) for on, first, then in marks], (end - marked) / 1e9)
        own = (end - start) / 1e9
        enqueue, completion = self.ranks.maximum([(enqueued - start) / 1e9, own])
        return Block(enqueue / iterations, completion / iterations, own / iterations)

    def sample(self, timing: Timing) -> float:
        """Add one block to a timing, and return its seconds; or the mean of one block with each of several batches.

        Of each batch it is the slowest rank's. The first block is compared with the devices' own time; in every block
        that would cost a mark per device.
        """
        assert timing.prepared, "only what was prepared is timed"
        subject, work, first = timing.prepared.subject, timing.prepared.call, not timing.completion
        blocks = list[Block]()
        for turn in range(subject.turns):
            subject.hold(turn)
            blocks.append(self.block(work, timing.iterations, compared=first, place=timing.variant.place))
        subject.hold(None)
        enqueue, completion, own = (float(mean(values)) for values in zip(*blocks, strict=True))
        timing.enqueue.append(enqueue)
        timing.completion.append(completion)
        timing.own.append(own)
        if subject.turns > 1:
            timing.by_turn.append([block.completion for block in blocks])
        return completion * timing.iterations * subject.turns

    def sample_at_once(self, timings: Sequence[Timing]) -> None:
        """Add one block to each of these timings, which run side by side; each takes its place's own time.

        One whose device has a fault fails; the others are not disturbed.
        """
        with contextlib.suppress(DeviceFault):  # it is said of its place below
            self.synchronize()
        marked = []
        for timing in timings:
            place, started = timing.variant.place, self.clock()
            assert timing.prepared, "only what was prepared is timed"
            assert place, "what runs beside others has a place of its own"
            with contextlib.suppress(DeviceFault), self.naming_faults(place):
                before = place.mark(self.clock)
                kept = [timing.prepared.call() for _ in range(timing.iterations)]
                marked.append((timing, before, place.mark(self.clock), kept))
                timing.enqueue.append((self.clock() - started) / 1e9 / timing.iterations)
        with contextlib.suppress(DeviceFault):
            self.synchronize()
        for timing, before, after, _ in marked:
            if not (timing.variant.place and timing.variant.place.fault):
                timing.completion.append(after.seconds_since(before) / timing.iterations)
        for timing in timings:
            if timing.variant.place and (fault := timing.variant.place.fault):
                timing.fail(f"{timing.variant.name}: {fault}", Reason.DEVICE_FAULT)

    def warm_up(self, work: Work, rule: Rule, place: Place | None = None, turns: int = 1) -> int:
        """Call the work until it is warm, with all of its batches in turn; return how many calls make a block."""
        spent, last = 0.0, math.inf
        while True:
            seconds = self.block(work, turns, place=place).completion
            spent, last = spent + turns * seconds, min(last, seconds)
            if spent >= rule.warmup_seconds:
                break
        calls = _calls(rule, last)
        for _ in range(ADJUSTMENTS if calls > 1 else 0):  # a call among many takes less than one that is waited for
            seconds = self.block(work, calls, place=place).completion
            if calls * seconds >= CLOSE * rule.block_seconds:
                break
            calls = _calls(rule, seconds)
        return calls

    def agreed_slowdown(self, watch: Watch | None) -> str:
        """What slowed a GPU down, on every rank if the leading one saw it; else ''."""
        seen = "; ".join(watch.slowdowns) if watch else ""
        (slowed,) = self.ranks.maximum([float(bool(seen))])
        return seen or ("a GPU was slowed down" if slowed else "")

    def _refuse_overrun(self, worked: Sequence[tuple[object, float]], ran: float) -> None:
        """NotSynchronised if a device worked for longer than the clock ran, on all ranks: none waits in vain."""
        device, longest = max(worked, key=lambda one: one[1], default=(None, 0.0))
        beyond = max(0.0, longest - ran * (1 + SHARE) - SECONDS)
        (worst,) = self.ranks.maximum([beyond])
        if worst > 0:
            told = f"on another rank, a device worked {1e3 * worst:.4g} ms longer than the clock ran"
            if beyond:
                told = f"{device} worked for {1e3 * longest:.4g} ms, but the clock stopped after {1e3 * ran:.4g} ms"
            raise NotSynchronised(f"{told}: synchronize() returned before the work was done, so no time is recorded")

    @contextlib.contextmanager
    def naming_faults(self, place: Place | None = None) -> Iterator[None]:
        """An error of work on a GPU that has a fault becomes DeviceFault, which names the GPU.

        A library may be the first to notice, in its own words: cuBLAS says that its execution failed.
        """
        try:
            yield
        except RuntimeError as error:
            try:
                self.synchronize(place)
            except RuntimeError as other:
                if reason_of(other) is Reason.DEVICE_FAULT:
                    raise other from error
            raise

    def _able(self) -> list[Synchronised]:
        """The devices without a fault: every call that reaches one of the others would raise its error again."""
        return [device for device in self.devices if not getattr(device, "fault", "")]

    def synchronize(self, place: Place | None = None) -> None:
        """Wait for every device, also if one has failed, so that no later work is blamed; raise the first error.

        If only what one place does is waited for, the fault of a device elsewhere raises nothing: its own work will.
        """
        failed = []
        for device in self._able():
            try:
                device.synchronize()
            except Exception as error:  # whatever the work raised
                if not (isinstance(error, DeviceFault) and place and not place.fault):
                    failed.append(error)
        if failed:
            raise failed[0]


def _calls(rule: Rule, seconds: float) -> int:
    return max(1, round(rule.block_seconds / seconds)) if seconds > 0 else 1
