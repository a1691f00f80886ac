"""Numbers with their uncertainty, and the terms of a step that are fitted: a device alone, its ranks, what overlaps.

Every quantity is an array of NUM draws, the same number of which is of the same draw. Whatever is computed from parts
then has draws too, and a band.

How much of what is exchanged a step waits for is told by what it was seen to wait for on fewer devices.

    waits = max(tail t', t' - room C) + extra C + fixed,    t' = slowed t

t       what the collectives take alone, C what the slowest rank computes
slowed  how many times as long they take beside computing
tail    the share of them that nothing is left to hide behind: the last bucket, the first parameters
room    the share of computing that can hide them, of which much is the backward
extra   what else the strategy adds, in proportion to computing or fixed: hooks, copies, kernels that are slowed down

The five are not known; they are weighed by how well they tell what was measured on fewer devices. Where little was
measured many are left, and the band is as wide as that. CPU ranks exchange with the cores that they compute with, so
little can be hidden, and a strategy adds more. Source of the weighing: Rubin, The calculation of posterior
distributions by data augmentation (1987), importance resampling.
"""

import math
import statistics
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

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
TAIL = 0.1  # the largest tenth of the ranks' times says how the still larger ones fall off
TRIED = 40_000
FEWEST = 60  # draws that must count, or the measured times are taken to be less sure than they say
MOST_WIDENED = 1e6  # how much less sure: what cannot be told then is left as it was thought to be
INACCURACY = 0.006  # of a step: what the formula itself misses
ADDED_ON_CPU = 10  # times as much is added there


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


def on_line(at: float, x: Draws, y: Draws) -> Draws:
    """Draws of what lies at a point between the two nearest of `x`, or beyond them; `y` is [NUM, points]."""
    right = int(np.clip(np.searchsorted(x, at), 1, len(x) - 1))
    (a, b), (low, high) = x[right - 1 : right + 1], y[:, right - 1 : right + 1].T
    return np.asarray(low + (high - low) * (at - a) / (b - a))


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


@dataclass(frozen=True)
class LocalTime:
    """Seconds of one device's step: `times` [NUM, batches] at growing batch `sizes`."""

    sizes: Draws
    times: Draws

    @classmethod
    def of(cls, records: Mapping[int, Record]) -> "LocalTime":
        """From records of one device by their batches."""
        sizes = sorted(records)
        return cls(np.array(sizes, dtype=float), np.stack([of_record(records[size]) for size in sizes], axis=1))

    @property
    def known(self) -> bool:
        """Whether other batches than one can be read off it."""
        return len(self.sizes) > 1

    @property
    def least(self) -> int:
        return int(self.sizes[0])

    def at(self, batch: float) -> Draws:
        """Linear between the batches that were timed, and beyond them; never less than nine tenths of the smallest."""
        if not self.known:
            return self.times[:, 0] if batch == self.sizes[0] else np.full(NUM, np.nan)
        return np.asarray(np.maximum(on_line(batch, self.sizes, self.times), 0.9 * self.times[:, 0]))


@dataclass(frozen=True, eq=False)
class Ranks:
    """How many times as long ranks take as the first one, which is the device that was also timed alone.

    `values` [values] are all measured factors, sorted; `below` [ranks, values] is the share of each rank's own steps
    that are no longer than that.
    """

    values: Draws
    below: Draws

    @classmethod
    def of(cls, records: Sequence[Record]) -> "Ranks":
        """From the ranks' own times of one number of devices, the first rank's first; without them, all are alike."""
        if not records:
            return cls(np.ones(1), np.ones((1, 1)))
        first = records[0]
        each = [
            np.concatenate(
                [np.asarray(own) / np.median(of) for own, of in zip(record.samples, first.samples, strict=False)]
            )
            for record in records
        ]
        values = np.sort(np.concatenate(each))
        return cls(values, np.stack([np.searchsorted(np.sort(own), values, side="right") / len(own) for own in each]))

    @cached_property
    def _others(self) -> Draws:
        """What a further rank may be: in every draw any of those measured, with repetition, as often as there are."""
        count = len(self.below)
        chosen = generator("ranks", count).integers(0, count, (NUM, count))
        return np.asarray(self.below[chosen].mean(axis=1))

    def slowest(self, ranks: int) -> Draws:
        """The expected largest factor of so many ranks: of those measured, and of draws from them for any further ones.

        Of one rank it is 1: that is the device that was timed alone. A device that is always slow stays so. Once there
        are more ranks than measured values, the largest tenth is continued by the exponential tail that fits it (Coles,
        An Introduction to Statistical Modeling of Extreme Values, 2001, section 4.2, with shape 0): the largest grows
        with the logarithm of the number of ranks.
        """
        if ranks == 1:
            return np.ones(NUM)
        measured = self.below[:ranks].prod(axis=0)
        further = max(0, ranks - len(self.below))
        until = measured * self._others**further
        found = np.diff(until, axis=1, prepend=0.0) @ self.values
        num = len(self.values)
        if further > num > 1:
            start = num - max(2, int(TAIL * num))
            scale = float((self.values[start:] - self.values[start - 1]).mean()) if start > 0 else 0.0
            found = found + scale * np.log(further / num)
        return np.asarray(found)


@dataclass(frozen=True)
class Seen:
    """One measured step: seconds that it takes, that the slowest rank computes, that the collectives take alone."""

    step: float
    computes: float
    exchanges: float
    sigma: float


class Overlap(NamedTuple):
    """Draws of what the formula needs."""

    slowed: Draws
    tail: Draws
    room: Draws
    extra: Draws
    fixed: Draws

    def waits(self, computes: Draws, exchanges: Draws) -> Draws:
        """Seconds that a step takes beyond computing."""
        beside = self.slowed * exchanges
        exposed = np.maximum(self.tail * beside, beside - self.room * computes)
        return np.asarray(exposed + self.extra * computes + self.fixed)


def overlap(seen: Sequence[Seen], *, extra: float, name: str, on_cpu: bool = False) -> Overlap:
    """What remains likely after these; `extra` is how much a strategy may be thought to add, before seeing it."""
    draw = generator("overlap", name)
    smallest = min((one.computes for one in seen), default=0.0)
    extra *= ADDED_ON_CPU if on_cpu else 1
    tried = Overlap(
        slowed=np.exp(0.2 + 0.2 * draw.standard_normal(TRIED)),
        tail=draw.uniform(0.5, 1, TRIED) ** 0.5 if on_cpu else draw.uniform(0, 1, TRIED) ** 2,
        room=draw.uniform(0, 0.2 if on_cpu else 0.9, TRIED),
        extra=np.abs(extra * draw.standard_normal(TRIED)),
        fixed=np.abs(extra * smallest * draw.standard_normal(TRIED)),
    )
    weights, widening = np.full(TRIED, 1 / TRIED), 1.0
    while seen and widening < MOST_WIDENED:
        weights = _weights(tried, seen, widening)
        if 1 / np.square(weights).sum() >= FEWEST:
            break
        widening *= 1.5
    chosen = draw.choice(TRIED, NUM, p=weights)
    return Overlap(*(part[chosen] for part in tried))


def _weights(tried: Overlap, seen: Sequence[Seen], widening: float) -> Draws:
    logs: Draws = np.zeros(TRIED)
    for one in seen:
        computes, exchanges = np.full(TRIED, one.computes), np.full(TRIED, one.exchanges)
        step = one.computes + tried.waits(computes, exchanges)
        logs -= np.square(np.log(step / one.step) / (widening * np.hypot(one.sigma, INACCURACY))) / 2
    likely = np.exp(logs - logs.max())
    return np.asarray(likely / likely.sum())
