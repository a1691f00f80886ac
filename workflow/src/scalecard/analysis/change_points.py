"""When a number changed over nights: at once, which a new driver or a broken part does, or little by little.

Steps are found by binary segmentation: of all places the one with the largest t is a change if chance gives one as
large, at any of them, too rarely; then both sides are searched. A single night that is far from its neighbours is an
outlier, not a change, and is left out. A line that explains the nights better than all steps is a drift.

Source of the segmentation: Scott and Knott, A Cluster Analysis Method for Grouping Means in the Analysis of Variance,
Biometrics 30 (1974). Of choosing by BIC: Yao, Statistics & Probability Letters 6 (1988).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import stats

from scalecard.records.statistics import Interval, Ratio

Logs = np.ndarray[tuple[int], np.dtype[np.float64]]
LEAST = 3  # nights on each side of a change: of fewer an outlier cannot be told
NEIGHBOURS = 5  # nights whose median one is compared with, itself among them
FAR = 6.0  # robust standard deviations from them, beyond which a night is an outlier
APART = 0.01  # and by at least so much: in a steady drift there is hardly a deviation
SCALE = 1.4826  # of the median absolute deviation, to be a standard deviation
CHANCE = 0.05  # that anything is found where nothing changed, over all numbers that are searched


@dataclass(frozen=True, kw_only=True)
class ChangePoint:
    """A change of a time that stayed: `at` is the place of the first night after a step, or of the first of a drift.

    `ratio` is the time after over the time before, of a drift that on its last night over its first.
    """

    at: int
    drift: bool
    ratio: Ratio


def outliers(times: Sequence[float]) -> list[int]:
    """The places of nights that are far from their neighbours, of which a step or a drift is none.

    Not of the first and last two: what changed in the last night may be a step.
    """
    if len(times) < NEIGHBOURS:
        return []
    logs, half = np.log(times), NEIGHBOURS // 2
    apart = np.abs(logs[half:-half] - np.median(np.lib.stride_tricks.sliding_window_view(logs, NEIGHBOURS), axis=1))
    far = max(FAR * SCALE * float(np.median(apart)), APART)
    return [half + int(place) for place in np.flatnonzero(apart > far)]


def change_points(times: Sequence[float], *, margin: float, numbers: int = 1) -> list[ChangePoint]:
    """What changed by more than the margin, the oldest first; `numbers` are searched in all, one of which this is."""
    left_out = outliers(times)
    kept = [place for place in range(len(times)) if place not in left_out]
    logs = np.log([times[place] for place in kept])
    ends = [0, *_steps(logs, 0, len(logs), margin, CHANCE / numbers), len(logs)]
    if len(ends) == 2:
        return []
    if drift := _drift(logs, ends, kept[0], margin):
        return [drift]
    groups = [logs[start:end] for start, end in pairwise(ends)]
    return [
        ChangePoint(at=kept[end], drift=False, ratio=_step_ratio(before, after))
        for end, before, after in zip(ends[1:], groups, groups[1:], strict=False)
    ]


def _steps(logs: Logs, start: int, end: int, margin: float, chance: float) -> list[int]:
    """The places between `start` and `end` at which a new level begins."""
    own, nights = logs[start:end], end - start
    firsts = np.arange(LEAST, nights - LEAST + 1)  # nights before the change, of every place that may be one
    if not len(firsts):
        return []
    # Student's t of equal variances at all places at once: scipy's takes a millisecond for each.
    sums, squares = np.cumsum(own)[firsts - 1], float(((own - own.mean()) ** 2).sum())
    apart = (own.sum() - sums) / (nights - firsts) - sums / firsts
    weights = firsts * (nights - firsts) / nights
    within = np.maximum(squares - weights * apart**2, 1e-12)
    values = np.abs(apart) * np.sqrt(weights * (nights - 2) / within)
    best = int(np.argmax(values))
    if 2 * stats.t.sf(values[best], nights - 2) * len(firsts) > chance or abs(apart[best]) < math.log1p(margin):
        return []
    place = start + int(firsts[best])
    middle = (logs[start:place].mean() + logs[place:end].mean()) / 2
    # One or two outliers at an end would take a usual night along.
    if (logs[place - 1] - middle) * (logs[place] - middle) >= 0:
        return []
    return [*_steps(logs, start, place, margin, chance), place, *_steps(logs, place, end, margin, chance)]


def _step_ratio(before: Logs, after: Logs) -> Ratio:
    """With its 95 % interval, by Student's t of the logarithms."""
    limits = stats.ttest_ind(after, before).confidence_interval(0.95)
    return _ratio_of(after.mean() - before.mean(), limits.low, limits.high)


def _drift(logs: Logs, ends: Sequence[int], first: int, margin: float) -> ChangePoint | None:
    """A line through all nights, if it explains them better than the steps, of which each has a place and a level."""
    places = np.arange(len(logs))
    line = stats.linregress(places, logs)
    groups = [logs[start:end] for start, end in pairwise(ends)]
    of_steps = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    of_line = float(((logs - line.intercept - line.slope * places) ** 2).sum())
    if _bic(of_line, len(logs), 2) >= _bic(of_steps, len(logs), 2 * len(groups) - 1):
        return None
    span, error = len(logs) - 1, float(stats.t.ppf(0.975, len(logs) - 2) * line.stderr)
    if abs(line.slope * span) < math.log1p(margin):
        return None
    low, high = ((line.slope + sign * error) * span for sign in (-1, 1))
    return ChangePoint(at=first, drift=True, ratio=_ratio_of(line.slope * span, low, high))


def _ratio_of(value: float, low: float, high: float) -> Ratio:
    return Ratio(math.exp(value), Interval(math.exp(low), math.exp(high)))


def _bic(residual: float, nights: int, values: int) -> float:
    """Smaller is better; `residual` is a sum of squares, and `values` were fitted."""
    return nights * math.log(max(residual, 1e-12) / nights) + values * math.log(nights)
