"""Is a difference between two machines, drivers or days real? Case by case, from samples, never from means alone.

B is compared with A: 'slower' means that the whole interval of B / A lies above the margin, and that this is no chance
finding among all cases compared. The interval is the larger of two uncertainties, within a process and between fresh
processes.

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

import functools
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import mean, median, variance
from typing import Any, NamedTuple

import scipy

from scalecard.analysis import MARGIN_OF_RUNS
from scalecard.analysis.provenance import doubts, warnings
from scalecard.records.axes import Case
from scalecard.records.record import Record, Result
from scalecard.records.statistics import CONFIDENCE, FEWEST, Interval, Ratio

# If a side was measured in one process, the spread between processes is unknown. Fresh processes doing the same work
# have differed by several per cent, so nothing smaller than this is called a difference.
MARGIN_OF_ONE_PROCESS = 0.10
LEVEL = (1 - CONFIDENCE) / 2  # of each family: one tail of the interval that is shown
MEDIAN_FOR_MEAN = math.pi / 2  # the variance of a median over that of a mean: of normal values, at most this
Uncertainty = tuple[float, float]  # a standard error of a logarithm, and the degrees of freedom of its estimate
VERDICTS = ("slower", "faster", "same", "unclear", "not compared")
# Values of a block that change how often, how long or where something is done, but not what a case times.
NOT_WORKLOAD = {"nodes", "measure", "data_dir", "seed", "epochs", "check_steps", "check_batch_size", "check_image_size"}
NOT_COMPARED = {"fingerprint", "host", "missing", "machine", "gpus", "topology", "dirty"}
FACTS_OF_MACHINE = ("driver", "cpu", "cores", "num_devices", "gpu_uuid_hashes")


class Scope(Enum):
    """What a fact is about."""

    MACHINE = "machine"
    GPU = "each GPU"
    ENVIRONMENT = "software and everything else"
    WORKLOAD = "the experiment's block of config.yaml"


class Fact(NamedTuple):
    """A fact by its key in a result."""

    scope: Scope
    key: str


GPUS, BOARDS, DRIVER = (Fact(Scope.MACHINE, key) for key in ("gpus", "gpu_uuid_hashes", "driver"))


@dataclass(frozen=True)
class Change:
    """A fact that differs between two results; None is not known."""

    fact: Fact
    old: Any
    new: Any


@dataclass(frozen=True, kw_only=True)
class Row:
    """One case that both sides have. Without a ratio it was not compared, because of the `differing` settings.

    `verdict` holds among all cases; `alone` is what the case's own interval says. Where that is more, `among` is the
    number of cases among which it does not hold.
    """

    experiment: str
    metric: str
    case: Case
    old: Record
    new: Record
    ratio: Ratio | None
    verdict: str
    alone: str
    differing: Sequence[Change] = ()
    among: int = 0

    @property
    def tested(self) -> bool:
        """Whether there is an interval to judge."""
        return bool(self.ratio and self.ratio.interval)

    @functools.cached_property
    def doubts(self) -> list[str]:
        """What makes the interval of either side too narrow."""
        sides = (("A", self.old), ("B", self.new))
        return [f"{name}: {doubt}" for name, record in sides for doubt in doubts(record.samples)]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Every case that both sides have, how many only one has, and how the two environments differ."""

    old: str
    new: str
    sides: tuple[Sequence[Result], Sequence[Result]]
    margin: float
    rows: list[Row]
    only: dict[str, int]
    changes: list[Change]
    warnings: list[tuple[str, str]]
    measured: str  # when B's last result was finished

    def count(self, verdict: str) -> int:
        return sum(row.verdict == verdict for row in self.rows)

    @property
    def num_tested(self) -> int:
        return sum(row.tested for row in self.rows)

    @property
    def spread_known(self) -> bool:
        """Whether every case was measured in several fresh processes on both sides."""
        return all(len(r.samples) > 1 for row in self.rows if row.ratio for r in (row.old, row.new))


def compare(
    old: Sequence[Result],
    new: Sequence[Result],
    *,
    margin: float = MARGIN_OF_RUNS,
    names: Sequence[str] = ("A", "B"),
) -> Comparison:
    """Compare two platforms' results; `names` distinguishes two with one label. ValueError if they share no case."""
    mine, theirs = ({r.experiment: r for r in results} for results in (old, new))
    rows = _judged([row for name in mine if name in theirs for row in _rows(mine[name], theirs[name], margin)], margin)
    if not rows:
        raise ValueError(f"nothing to compare: {_contents(old)} and {_contents(new)} have no measured case in common")
    a, b = (sum(len(_timed(r)) for r in results) for results in (old, new))
    if old[0].platform != new[0].platform:
        names = old[0].platform, new[0].platform
    return Comparison(
        old=names[0],
        new=names[1],
        sides=(old, new),
        margin=margin,
        rows=sorted(rows, key=lambda row: (VERDICTS.index(row.verdict), -(row.ratio.value if row.ratio else 0))),
        only={"A": a - len(rows), "B": b - len(rows)},
        changes=changes(old[0].environment, new[0].environment),
        warnings=[
            *(("A", text) for text in warnings([r for r in old if r.experiment in theirs])),
            *(("B", text) for text in warnings([r for r in new if r.experiment in mine])),
        ],
        measured=max(r.finished for r in new),
    )


def only(old: Sequence[Result], new: Sequence[Result], names: Sequence[str]) -> tuple[list[Result], list[Result]]:
    """Both sides' results of these experiments, of all without any. ValueError for one that a side does not have."""
    both = sorted({r.experiment for r in old} & {r.experiment for r in new})
    if unknown := [name for name in names if name not in both]:
        raise ValueError(f"--only {unknown[0]}: not in both A and B (in both: {', '.join(both) or 'none'})")
    a, b = ([r for r in results if not names or r.experiment in names] for results in (old, new))
    return a, b


def _contents(results: Sequence[Result]) -> str:
    return f"{results[0].platform} ({', '.join(sorted(r.experiment for r in results))})" if results else "nothing"


def _timed(result: Result) -> dict[str, Record]:
    return {
        json.dumps([r.metric, r.case], sort_keys=True): r for r in result.records if r.status == "ok" and r.unit == "s"
    }


def _rows(old: Result, new: Result, margin: float) -> Iterator[Row]:
    mine, theirs = _timed(old), _timed(new)
    differing = different_workload(old.spec, new.spec)
    for key in (key for key in mine if key in theirs):
        a, b = mine[key], theirs[key]
        ratio = None if differing else b.over(a)
        verdict = _verdict(ratio, a, b, margin) if ratio else "not compared"
        yield Row(
            experiment=old.experiment,
            metric=a.metric,
            case=a.case,
            old=a,
            new=b,
            ratio=ratio,
            verdict=verdict,
            alone=verdict,
            differing=differing,
        )


def _verdict(ratio: Ratio, old: Record, new: Record, margin: float) -> str:
    """The verdict of a case by itself; with only one process on a side, a difference must be larger to count."""
    verdict = ratio.verdict_at(margin)
    surely = verdict == "same" or ratio.verdict_at(max(margin, _assumed(old, new))) == verdict
    return verdict if surely else "unclear"


def _assumed(old: Record, new: Record) -> float:
    """The difference between fresh processes that is assumed if a side had only one."""
    return MARGIN_OF_ONE_PROCESS if min(len(old.samples), len(new.samples)) == 1 else 0.0


def _judged(rows: Sequence[Row], margin: float) -> list[Row]:
    """The rows with verdicts that hold among all of them; 'same' is what its interval says, and stays.

    Nothing is upheld that the case's own interval does not say. A case that is alone keeps its verdict.
    """
    tested = [row for row in rows if row.tested]
    if len(tested) < 2:
        return list(rows)
    priors, lost = (_prior([row.old for row in tested]), _prior([row.new for row in tested])), set[int]()
    for verdict in ("slower", "faster"):
        values = [_p_value(row, margin, *priors) if row.alone == verdict else 1.0 for row in tested]
        adjusted = scipy.stats.false_discovery_control(values, method="bh")
        lost |= {id(row) for row, p in zip(tested, adjusted, strict=True) if row.alone == verdict and p > LEVEL}
    return [replace(row, verdict="unclear", among=len(tested)) if id(row) in lost else row for row in rows]


@dataclass(frozen=True)
class Prior:
    """What the spreads of all cases say about one of them, as a variance of logarithms and its degrees of freedom."""

    variance: float
    freedom: float


def _prior(records: Sequence[Record]) -> Prior | None:
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


def _p_value(row: Row, margin: float, old: Prior | None, new: Prior | None) -> float:
    """How often a case whose ratio is at the margin would look as different as this one, in its direction.

    As for the interval that is shown, errors of both sides add in quadrature, and the larger of the uncertainties
    within and between processes counts: here the one that gives the larger value. What is assumed of processes is read
    as the limit that 95 % of the differences keep.
    """
    assert row.ratio, "only what has an interval is tested"
    slower, difference = row.alone == "slower", _assumed(row.old, row.new)
    assumed = math.log1p(difference)
    beyond = abs(math.log(row.ratio.value)) - math.log1p(max(margin, difference)) + assumed
    sides = _uncertainties(row.old, old, upward=slower), _uncertainties(row.new, new, upward=not slower)
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


def different_workload(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """The values of the block that make equal cases different work. A sweep's point is part of the case."""
    keys = [k for k in {**old, **new} if k not in NOT_WORKLOAD and not isinstance(old.get(k), list | tuple)]
    return _differences(*({Fact(Scope.WORKLOAD, key): block.get(key) for key in keys} for block in (old, new)))


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """What differs between two environments."""
    return _differences(_facts(old), _facts(new))


def _differences(old: Mapping[Fact, Any], new: Mapping[Fact, Any]) -> list[Change]:
    pairs = ((fact, old.get(fact), new.get(fact)) for fact in {**old, **new})
    return [Change(fact, a, b) for fact, a, b in pairs if a != b]


def _facts(environment: Mapping[str, Any]) -> dict[Fact, Any]:
    machine, gpus = environment["machine"], environment["gpus"]
    kinds = {key for gpu in gpus for key in gpu} - {"name", "uuid_hash"}
    of_each = {key: [gpu.get(key) for gpu in gpus] for key in sorted(kinds)}
    return {
        GPUS: (len(machine["gpus"]), *machine["gpus"][:1]),
        **{Fact(Scope.MACHINE, key): machine[key] for key in FACTS_OF_MACHINE},
        # One value, if all GPUs have the same.
        **{Fact(Scope.GPU, key): own[0] if own.count(own[0]) == len(own) else own for key, own in of_each.items()},
        **{Fact(Scope.ENVIRONMENT, key): value for key, value in environment.items() if key not in NOT_COMPARED},
    }
