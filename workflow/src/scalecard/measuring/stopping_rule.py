"""When rounds stop: config.yaml's `measure` block, and the experiment's share of its `budget`.

Rounds stop when the 95 % interval of the median log-ratio to the first variant is narrow enough, or at a limit.

Every case is measured in one process before any is in further ones. If the budget is too small even for that, every
variant gets a part of its time. If that still takes too long, what is being compared gets the fewest rounds that make
an interval, and what has not begun is left out.
"""

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import Field

from scalecard import progress
from scalecard.measuring.shared_decisions import Ranks
from scalecard.records.statistics import FEWEST, median_interval

WEEK = 7 * 24 * 3600  # nobody waits longer for one case
TRIALS_SHARE = 0.75  # of the time that is left, at most, to try what fits: the rest is to time what was found
COARSE = 3  # sizes of a sweep that are its headline: its ends and its middle
T = TypeVar("T")
Count = Annotated[int, Field(ge=2, le=1_000_000)]
Seconds = Annotated[float, Field(ge=0, le=WEEK, allow_inf_nan=False)]

# Inherited by the processes that measure. The deadline is by the monotonic clock, which a machine's processes share.
DEADLINE, PACE = "SCALECARD_DEADLINE", "SCALECARD_PACE"
OVER = "its share of the time budget was used up"
LEFT_OUT = f"left out: {OVER}"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The values of config.yaml's `measure`; ValueError names the key and value that are not allowed."""

    warmup_seconds: Seconds
    block_seconds: Seconds
    min_rounds: Count
    max_rounds: Count
    min_seconds: Seconds
    max_seconds: Annotated[Seconds, Field(gt=0)]
    processes: Annotated[int, Field(ge=1, le=100)]
    precision: Annotated[float, Field(gt=0, lt=1)]

    def __post_init__(self) -> None:
        if self.max_rounds < self.min_rounds:
            raise ValueError(f"measure.max_rounds = {self.max_rounds}: must be at least min_rounds = {self.min_rounds}")


def begin_budget(seconds: float, usual: float) -> None:
    """From now on this process, and those that it starts, have so many seconds; 0: as many as they need.

    If one process usually takes longer than that, each variant gets the same part of its `max_seconds`.
    """
    os.environ[DEADLINE] = str(time.monotonic() + (seconds or math.inf))
    os.environ[PACE] = str(min(1.0, seconds / usual) if seconds and usual else 1.0)


def pace() -> float:
    """The part of `max_seconds` that each variant gets."""
    return float(os.environ.get(PACE, "1"))


def budget_left() -> float:
    """The seconds of the budget that are left."""
    return float(os.environ.get(DEADLINE, "inf")) - time.monotonic()


@contextmanager
def part_of_budget(part: float) -> Iterator[None]:
    """Meanwhile this process, and those that it starts, have this part of what is left: others need the rest."""
    before = os.environ.get(DEADLINE, "inf")
    os.environ[DEADLINE] = str(time.monotonic() + part * budget_left())
    try:
        yield
    finally:
        os.environ[DEADLINE] = before


def in_equal_parts(items: Sequence[T], *, label: Callable[[T], str], headline: int = 0) -> Iterator[T]:
    """These, announced, each with an equal part of the budget that is left at its turn: none eats what others need.

    The first so many, the `headline`, share all of it, and the others what these leave.
    """
    for done, item in enumerate(progress.cases(items, label=label)):
        sharing = min(headline, len(items)) if done < headline else len(items)
        with part_of_budget(1 / (sharing - done)):
            yield item


def coarse_to_fine(items: Sequence[T]) -> list[T]:
    """The order of a sweep that time may end: the last and the first, the middle, then the middles between those."""
    last = len(items) - 1
    order, gaps = list(dict.fromkeys([last, 0])) if items else [], deque([(0, last)])
    while gaps:
        low, high = gaps.popleft()
        if high - low > 1:
            middle = (low + high) // 2
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return [items[place] for place in order]


def budget_over(ranks: Ranks) -> bool:
    """Whether the budget is used up: for all ranks if it is for the leading one."""
    (used_up,) = ranks.maximum([float(ranks.leads and budget_left() <= 0)])
    return bool(used_up)


class Decision:
    """Says after every round whether it was the last one, and why."""

    def __init__(self, rule: Rule) -> None:
        self.rule, self.longest = rule, rule.max_seconds * pace()
        self._next_look = rule.min_rounds

    def reason(self, samples: Sequence[Sequence[float]], elapsed: float, *, over: bool) -> str:
        """Why to stop with these samples of each variant after `elapsed` seconds, or ''; `over`: the budget is."""
        done, each = len(samples[0]), elapsed / len(samples)
        if over and done >= FEWEST:
            return OVER
        if done >= self.rule.max_rounds:
            return f"{self.rule.max_rounds} rounds"
        # Slow work gets up to three times as long to reach min_rounds.
        if each >= self.longest and (done >= self.rule.min_rounds or (done >= 2 and each >= 3 * self.longest)):
            return f"{self.longest:.3g} s per variant"
        if done < self._next_look:
            return ""
        # Each look is another chance to stop on an interval that is narrow by luck.
        self._next_look = math.ceil(done * 1.25)
        precise = elapsed >= self.rule.min_seconds and is_precise(samples, self.rule.precision)
        return f"interval within {100 * self.rule.precision:g} %" if precise else ""


def is_precise(samples: Sequence[Sequence[float]], precision: float) -> bool:
    """Whether the interval of every median log-ratio to the first, or of a single variant's logarithm, is narrow."""
    base, *others = samples
    logs = [[math.log(a / b) for a, b in zip(other, base, strict=True)] for other in others]
    intervals = [median_interval(values) for values in logs or [[math.log(s) for s in base]]]
    return all(interval is not None and interval.half_width <= precision for interval in intervals)
