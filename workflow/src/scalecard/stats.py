"""Statistics of raw samples: the median with its interval, and the verdict on a ratio.

Medians and order statistics only: timings are skewed, and an interval of the mean says little about them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from scipy import stats

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
        if self.interval is None:
            return "unclear"
        low, high = math.log(self.interval.low), math.log(self.interval.high)
        margin = math.log1p(MARGIN)
        if high < -margin:
            return "faster"
        if low > margin:
            return "slower"
        return "same" if -margin <= low and high <= margin else "unclear"


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """The order-statistic interval of the median, or None below six samples, where none exists at 95 %.

    Source: Conover, Practical Nonparametric Statistics (3rd ed., 1999), section 3.2, as in scipy.stats.quantile_test.
    """
    low, high = stats.quantile_test(samples, q=0, p=0.5).confidence_interval(confidence)
    return None if math.isnan(low) or math.isnan(high) else Interval(float(low), float(high))


def interquartile_range(samples: Sequence[float]) -> float:
    return float(stats.iqr(samples))


def paired_ratio(new: Sequence[float], old: Sequence[float]) -> Ratio:
    """The median of new/old over rounds that measured both, so that slow drift of the machine cancels."""
    logs = [math.log(a / b) for a, b in zip(new, old, strict=True)]
    interval = median_interval(logs)
    bounds = interval and Interval(math.exp(interval.low), math.exp(interval.high))
    return Ratio(math.exp(median(logs)), bounds)


def unpaired_ratio(new: Sequence[float], old: Sequence[float]) -> Ratio:
    """The ratio of medians of separate runs; its interval takes both medians at their worst."""
    a, b = median_interval(new), median_interval(old)
    bounds = Interval(a.low / b.high, a.high / b.low) if a and b else None
    return Ratio(median(new) / median(old), bounds)
