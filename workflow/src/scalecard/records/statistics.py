"""Statistics of raw samples: the median with its interval, and the verdict on a ratio.

Medians and order statistics only: timings are skewed, and an interval of the mean says little about them.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median, stdev

CONFIDENCE = 0.95
MARGIN = 0.01
FEWEST = 6  # samples for an interval of the median at 95 %: 2 / 2**6 < 5 % <= 2 / 2**5


@dataclass(frozen=True)
class Interval:
    """A two-sided confidence interval, in the unit of the samples."""

    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Ratio:
    """new / old with its interval; the verdict reads the samples as times (less is faster)."""

    value: float
    interval: Interval | None

    @property
    def verdict(self) -> str:
        """'faster', 'slower', 'same' (within the margin of 1 %) or 'unclear'."""
        return self.verdict_at(MARGIN)

    def verdict_at(self, margin: float) -> str:
        """The verdict if a difference up to the fraction `margin` does not matter."""
        if self.interval is None:
            return "unclear"
        low, high = math.log(self.interval.low), math.log(self.interval.high)
        margin = math.log1p(margin)
        if high < -margin:
            return "faster"
        if low > margin:
            return "slower"
        return "same" if -margin <= low and high <= margin else "unclear"


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """The order-statistic interval of the median, or None below six samples, where none exists at 95 %.

    Source: Conover, Practical Nonparametric Statistics (3rd ed., 1999), section 3.2; scipy.stats.quantile_test has the
    same one.
    """
    ranks = _ranks_of_interval(len(samples), confidence)
    if ranks is None:
        return None
    low, high = (sorted(samples)[rank] for rank in ranks)
    return Interval(float(low), float(high))


@functools.cache  # a comparison of 800 cases asks thousands of times
def _ranks_of_interval(count: int, confidence: float) -> tuple[int, int] | None:
    """Which of `count` sorted samples, from 0, are the limits: they depend on nothing else.

    The lower one is the last below which, by the binomial distribution, the median lies with less than `tail`.
    """
    tail = math.ceil(Fraction((1 - confidence) / 2) * 2**count)  # of so many equally likely sides of the median
    low, ways, below = -1, 1, 1  # `ways` in which `low` + 1 samples lie below the median, and at most as many
    while below < tail:
        low += 1
        ways = ways * (count - low) // (low + 1)
        below += ways
    return None if low < 0 else (low, count - 1 - low)


def within(processes: Sequence[Sequence[float]]) -> Interval | None:
    """The uncertainty of a process about its own median, around the median of all; None if one has no interval.

    Each limit is the median over processes of its distance from their medians. The widest interval would be no use: it
    grows with the number of processes. No limit lies beyond all samples: times stay positive, however unlike they are.
    """
    middles, found = [median(samples) for samples in processes], [median_interval(samples) for samples in processes]
    known = [(middle, interval) for middle, interval in zip(middles, found, strict=True) if interval]
    if len(known) < len(middles) or not known:
        return None
    centre = median(middles)
    low, high = median(i.low - middle for middle, i in known), median(i.high - middle for middle, i in known)
    return Interval(max(centre + low, min(map(min, processes))), min(centre + high, max(map(max, processes))))


def between(processes: Sequence[Sequence[float]], confidence: float = CONFIDENCE) -> Interval | None:
    """The uncertainty between fresh processes, from their medians; None for one process.

    From six processes on, the order-statistic interval, which one outlier does not widen; below six, Student's t on the
    log scale, which needs fewer processes and assumes more.
    """
    if len(processes) < 2 or min(map(min, processes)) <= 0:
        return None
    if len(processes) >= FEWEST:
        return median_interval([median(samples) for samples in processes], confidence)
    import scipy  # a host that only starts containers has none; scipy.stats would cost each that measures a second

    logs = [math.log(median(samples)) for samples in processes]
    half = float(scipy.special.stdtrit(len(logs) - 1, (1 + confidence) / 2)) * stdev(logs) / math.sqrt(len(logs))
    centre = median(logs)
    return Interval(math.exp(centre - half), math.exp(centre + half))


def larger(*intervals: Interval | None) -> Interval | None:
    """The widest of those that exist."""
    return max((i for i in intervals if i), key=lambda i: i.half_width, default=None)


def paired_ratio(new: Sequence[Sequence[float]], old: Sequence[Sequence[float]]) -> Ratio:
    """The median of new/old over rounds that measured both, so that slow drift of the machine cancels.

    Both are sequences of processes; the interval is the larger of those within and between them.
    """
    ratios = [[a / b for a, b in zip(x, y, strict=True)] for x, y in zip(new, old, strict=True)]
    value = median(median(process) for process in ratios)
    return Ratio(value, larger(within(ratios), between(ratios)))


def unpaired_ratio(new: Sequence[Sequence[float]], old: Sequence[Sequence[float]]) -> Ratio:
    """The ratio of medians of separate runs, its interval from those of the two medians.

    Source: Zou and Donner, Construction of confidence limits about effect measures (2008): the distances from the
    estimate to the two limits add in quadrature, on the log scale.
    """
    a, b = (larger(within(processes), between(processes)) for processes in (new, old))
    x, y = (median(median(process) for process in processes) for processes in (new, old))
    if not (a and b):
        return Ratio(x / y, None)
    down = math.hypot(math.log(x / a.low), math.log(b.high / y))
    up = math.hypot(math.log(a.high / x), math.log(y / b.low))
    return Ratio(x / y, Interval(x / y * math.exp(-down), x / y * math.exp(up)))
