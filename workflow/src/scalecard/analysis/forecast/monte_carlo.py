"""Numbers with their uncertainty, as draws: every quantity is an array of NUM values, the same number of which is of
the same draw. Whatever is computed from parts then has draws too, and a band.
"""

import math
import statistics
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalecard.records.record import Record
from scalecard.records.statistics import Interval, Ratio

NUM = 400
BAND = (2.5, 97.5)  # percent
LEAST, UNKNOWN = 0.002, 0.05  # standard deviation of a logarithm: of what is known best, and of a single sample
NORMAL = 1.96  # half a 95 % interval, in standard deviations
Draws = NDArray[np.float64]
Prior = tuple[tuple[float, float], ...]  # (mean, standard deviation) of each coefficient


def generator(*name: object) -> np.random.Generator:
    """The same for the same name, so that a forecast is the same every time."""
    return np.random.default_rng(zlib.crc32(repr(name).encode()))


def of_record(record: Record) -> Draws:
    """Its median in seconds, as sure as its 95 % interval says: log-normal, within processes and between them."""
    return log_normal(record.median, spread(record), record.metric, sorted(record.case.items(), key=str))


def of_ratio(ratio: Ratio, *name: object) -> Draws:
    """A ratio, likewise."""
    return log_normal(ratio.value, _of_interval(ratio.interval) or UNKNOWN, *name)


def log_normal(middle: float, sigma: float, *name: object) -> Draws:
    """Values around `middle` whose logarithms have the standard deviation `sigma`."""
    return np.asarray(middle * np.exp(sigma * generator(*name).standard_normal(NUM)))


def spread(record: Record) -> float:
    """The standard deviation of the logarithm of its median; of too few samples for an interval, twice their error."""
    known = _of_interval(record.interval)
    if known is not None:
        return known
    logs = [math.log(value) for samples in record.samples for value in samples if value > 0]
    return max(LEAST, 2 * statistics.stdev(logs) / math.sqrt(len(logs))) if len(logs) > 1 else UNKNOWN


def _of_interval(interval: Interval | None) -> float | None:
    if interval is None or interval.low <= 0:
        return None
    return max(LEAST, math.log(interval.high / interval.low) / (2 * NORMAL))


def middle(values: Any) -> float:
    """The median of draws."""
    return float(np.median(values))


def band(values: Draws) -> Interval:
    """Where 95 % of draws lie."""
    low, high = np.percentile(values, BAND)
    return Interval(float(low), float(high))


def line(x: Draws, y: Draws, sigma: Draws, prior: Prior, *name: object) -> Draws:
    """Draws [NUM, coefficients] of y = level + sum of slopes x, after seeing y [points] with errors `sigma`.

    `x` is [points, slopes], or [points] of one slope; `prior` begins with that of the level. With no points it is the
    prior. Source: Gelman et al., Bayesian Data Analysis (3rd ed., 2013), section 14.2, with known variances.
    """
    means, deviations = (np.array(values) for values in zip(*prior, strict=True))
    design = np.column_stack([np.ones(len(y)), x.reshape(len(y), len(prior) - 1)])
    precision = np.diag(deviations**-2.0) + design.T @ (design / np.square(sigma)[:, None])
    covariance = np.linalg.inv(precision)
    centre = covariance @ (means / np.square(deviations) + design.T @ (y / np.square(sigma)))
    return np.asarray(generator("line", *name).multivariate_normal(centre, covariance, NUM))
