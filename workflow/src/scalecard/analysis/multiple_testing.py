"""Which differences hold among all cases that are compared at once.

A 95 % interval may call 2.5 % of unchanged cases slower and 2.5 % faster. So each of the two is a family of hypotheses
("no more than the margin slower"), controlled at 2.5 % by the procedure of Benjamini and Hochberg (Controlling the
false discovery rate, 1995): of the cases called slower, at most 2.5 % are expected not to be.

Why not Holm (A simple sequentially rejective multiple test procedure, 1979), which limits the chance of a single error?
If no case became slower, both call any slower in at most 2.5 % of comparisons, so a gate on 'slower' raises as few
false alarms with either; and as the faster cases are a family of their own, no number of them changes that. If many
became slower, as after a driver's change, Holm judges each as if it were the only one and finds fewer. The gate is then
right to fail, and an unchanged case that is named beside many that changed does little harm.

Cases that are timed in the same processes vary together. Benjamini and Yekutieli (2001) prove the procedure for such
positive dependence of normal values; for the statistics used here, tests/benchmarks/aa.py --simulated tries it.

Levels that small need more than the spread of three processes tells: with two degrees of freedom, Student's t quantile
grows from 4.3 for one case to over 100 for 790. So the spread between few processes is moderated: drawn towards that of
the platform's other cases, by as much as these resemble one another (Smyth, Linear models and empirical Bayes methods
for assessing differential expression in microarray experiments, 2004, section 6.2).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median, variance

import scipy

from scalecard.records.record import Record
from scalecard.records.statistics import CONFIDENCE, FEWEST, Interval

LEVEL = (1 - CONFIDENCE) / 2  # of each family: one tail of the interval that is shown
Uncertainty = tuple[float, float]  # a standard error of a logarithm, and the degrees of freedom of its estimate
MEDIAN_FOR_MEAN = math.pi / 2  # the variance of a median over that of a mean: of normal values, at most this


@dataclass(frozen=True, kw_only=True)
class Tested:
    """A case with an interval: new / old, its verdict by itself, and the margin that a difference must exceed.

    `assumed` is how much fresh processes may differ where there was only one, as a fraction; the margin includes it.
    """

    old: Record
    new: Record
    ratio: float
    alone: str
    margin: float
    assumed: float = 0.0


@dataclass(frozen=True)
class Prior:
    """What the spreads of all cases say about one of them, as a variance of logarithms and its degrees of freedom."""

    variance: float
    freedom: float


def upheld(cases: Sequence[Tested]) -> list[bool]:
    """Whether each case's 'slower' or 'faster' holds among all cases; False for those with another verdict.

    Nothing is upheld that the case's own interval does not say. A case that is alone keeps its verdict.
    """
    if len(cases) < 2:
        return [case.alone in ("slower", "faster") for case in cases]
    priors = prior([case.old for case in cases]), prior([case.new for case in cases])
    held = [False] * len(cases)
    for verdict in ("slower", "faster"):
        values = [_p_value(case, *priors) if case.alone == verdict else 1.0 for case in cases]
        adjusted = scipy.stats.false_discovery_control(values, method="bh")
        held = [known or bool(p <= LEVEL) for known, p in zip(held, adjusted, strict=True)]
    return held


def prior(records: Sequence[Record]) -> Prior | None:
    """What few processes of one platform have in common; None if fewer than two cases tell.

    Source: Smyth (2004): the mean and the variance of the logarithms of the cases' variances, less what
    their own degrees of freedom explain. Cases without any spread tell nothing; to leave them out is cautious.
    """
    spreads = [(_variance(r), len(r.samples) - 1) for r in records if _few(r)]
    known = [(own, freedom / 2) for own, freedom in spreads if own > 0]
    if len(known) < 2:
        return None
    logs = [math.log(own) - scipy.special.digamma(half) + math.log(half) for own, half in known]
    excess = variance(logs) - mean(float(scipy.special.polygamma(1, half)) for _, half in known)
    # Trigamma falls from 1e8 to 1e-6 between these limits; cases no more unlike than chance explains share one spread.
    half = scipy.optimize.brentq(lambda x: scipy.special.polygamma(1, x) - max(excess, 1.1e-6), 1e-4, 1e6)
    return Prior(math.exp(mean(logs) + scipy.special.digamma(half) - math.log(half)), 2 * half)


def _few(record: Record) -> bool:
    """Whether the spread between processes is one of Student's t; beyond, order statistics need no help."""
    return 2 <= len(record.samples) < FEWEST and min(map(min, record.samples)) > 0


def _variance(record: Record) -> float:
    return variance(math.log(median(samples)) for samples in record.samples)


def _p_value(case: Tested, old: Prior | None, new: Prior | None) -> float:
    """How often a case whose ratio is at the margin would look as different as this one, in its direction.

    As for the interval that is shown, errors of both sides add in quadrature, and the larger of the uncertainties
    within and between processes counts: here the one that gives the larger value. What is assumed of processes is read
    as the limit that 95 % of the differences keep.
    """
    slower = case.alone == "slower"
    assumed = math.log1p(case.assumed)
    beyond = abs(math.log(case.ratio)) - math.log1p(case.margin) + assumed
    sides = _uncertainties(case.old, old, upward=slower), _uncertainties(case.new, new, upward=not slower)
    guess = assumed / scipy.stats.norm.isf(LEVEL), math.inf
    return max(_tail(beyond, a, b, guess) for a, b in itertools.product(*sides))


def _uncertainties(record: Record, prior: Prior | None, *, upward: bool) -> list[Uncertainty]:
    """Of a side's median, towards the other side's: within a process and between processes, as far as known."""
    found: list[Uncertainty] = [(_distance(record, record.within, upward) / scipy.stats.norm.isf(LEVEL), math.inf)]
    freedom = len(record.samples) - 1
    if _few(record) and prior:
        total = prior.freedom + freedom
        moderated = (prior.freedom * prior.variance + freedom * _variance(record)) / total
        found.append((math.sqrt(MEDIAN_FOR_MEAN * moderated / len(record.samples)), total))
    elif record.between:
        found.append((_distance(record, record.between, upward) / scipy.stats.t.isf(LEVEL, freedom), freedom))
    return found


def _distance(record: Record, interval: Interval | None, upward: bool) -> float:
    """From the median to one limit, on the log scale; 0 without an interval."""
    if not interval:
        return 0.0
    return math.log(interval.high / record.median) if upward else math.log(record.median / interval.low)


def _tail(beyond: float, *parts: Uncertainty) -> float:
    """Student's t with the degrees of freedom of Welch (1947) for a sum of independent errors."""
    error = math.hypot(*(own for own, _ in parts))
    if not error:
        return 0.0
    share = sum((own / error) ** 4 / freedom for own, freedom in parts)
    return float(scipy.stats.t.sf(beyond / error, 1 / share if share else math.inf))
