"""What one call takes in joules.

Many counters move only about every 100 ms, so less than a second is not a measurement. Source: Yang, Adamek, Armour,
Part-time Power Measurements (2024), arXiv:2312.02741.
"""

import math
from collections.abc import Callable
from statistics import median

from scalecard.measuring.case_variant import Timing
from scalecard.measuring.failures import caught
from scalecard.measuring.telemetry import Watch
from scalecard.measuring.timer import Bench

WINDOW = 1.0  # seconds
NO_COUNTER = "no counter on every GPU"
OTHER_NODES = "the GPUs of other nodes are not seen from here"
TOO_SHORT = f"took less than the {WINDOW:g} s that the GPUs' counters need"


class Meter:
    """The counters before and after a window; which ranks can read them is agreed upon once."""

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
        if self.reason or timing.failure or not timing.prepared:
            return
        calls, work = math.ceil(1.1 * WINDOW / median(timing.completion)), timing.prepared.call
        calls += -calls % timing.prepared.subject.turns  # over whole cycles of its batches
        with caught(on_failure=timing.fail, alone=self._bench.ranks.alone):
            self.add(timing, lambda: calls * self._bench.block(work, calls).completion, calls)

    def _joules(self) -> float | None:
        return None if self.reason or not self._watch else self._watch.energy()
