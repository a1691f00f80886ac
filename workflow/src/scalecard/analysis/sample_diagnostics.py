"""Says in plain words why an interval within a process is too narrow: samples drift or resemble their neighbours."""

import functools
import math
from collections.abc import Sequence
from statistics import median

from scipy import stats

from scalecard.analysis import formatting

NOTABLE_DRIFT = 0.02  # on the log scale
NOTABLE_CORRELATION = 0.4
FEWEST_SAMPLES = 12
SIGNIFICANCE = 0.01


def doubts(processes: Sequence[Sequence[float]]) -> list[str]:
    """Remarks on the samples of several processes; empty if nothing stands out."""
    return list(_doubts(tuple(map(tuple, processes))))


@functools.cache  # a report compares the current platform with each other one, and scipy takes milliseconds
def _doubts(processes: tuple[tuple[float, ...], ...]) -> list[str]:
    long = [samples for samples in processes if len(samples) >= FEWEST_SAMPLES]
    remarks = []
    drifts = sorted(((abs(math.log(drift(samples))), samples) for samples in long), reverse=True)
    # The test takes longest, so only what would be said is tested: the largest drift first.
    notable = [samples for size, samples in drifts if size > NOTABLE_DRIFT]
    tested = (drift(samples) for samples in notable if _halves_differ(samples, SIGNIFICANCE / len(long)))
    worst = next(tested, None)
    if worst is not None:
        change = "slower" if worst > 1 else "faster"
        remarks.append(f"{formatting.percent(abs(worst - 1))} {change} in the second half than in the first")
    related = max((autocorrelation(s) for s in long if autocorrelation(s) > 2 / math.sqrt(len(s))), default=0.0)
    if related > NOTABLE_CORRELATION:
        remarks.append(f"neighbouring samples resemble one another (autocorrelation {related:.2f})")
    return remarks


def drift(samples: Sequence[float]) -> float:
    """The median of the second half over that of the first: 1.05 means 5 % slower at the end."""
    half = len(samples) // 2
    return median(samples[-half:]) / median(samples[:half])


def autocorrelation(samples: Sequence[float]) -> float:
    """The rank correlation of neighbouring samples, from -1 to 1; independent samples are near 0."""
    found = float(stats.spearmanr(samples[:-1], samples[1:]).statistic) if len(set(samples)) > 1 else 0.0
    return 0.0 if math.isnan(found) else found


def _halves_differ(samples: Sequence[float], level: float) -> bool:
    """Whether the halves differ by more than their scatter explains (Mann-Whitney test)."""
    half = len(samples) // 2
    return bool(stats.mannwhitneyu(samples[:half], samples[-half:]).pvalue < level)
