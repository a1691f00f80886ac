"""Is a difference between two machines, drivers or days real? Case by case, from samples, never from means alone.

B is compared with A: 'slower' means that the whole interval of B / A lies above the margin, and that this is no chance
finding among all cases compared (multiple_testing.py). The interval is the larger of two uncertainties, within a
process and between fresh processes.
"""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from scalecard.analysis import MARGIN, multiple_testing
from scalecard.analysis.provenance import doubts, warnings
from scalecard.records.record import Case, Record, Result
from scalecard.records.statistics import Ratio

# If a side was measured in one process, the spread between processes is unknown. Fresh processes doing the same work
# have differed by several per cent, so nothing smaller than this is called a difference.
MARGIN_OF_ONE_PROCESS = 0.10
VERDICTS = ("slower", "faster", "same", "unclear", "not compared")
# Values of a block that change how often, how long or where something is done, but not what a case times.
NOT_WORKLOAD = {
    *("nodes", "measure", "data_dir", "seed", "epochs"),
    *("check_steps", "check_batch_size", "check_image_size"),
}
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
    old: Sequence[Result], new: Sequence[Result], *, margin: float = MARGIN, names: Sequence[str] = ("A", "B")
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
    """The rows with verdicts that hold among all of them; 'same' is what its interval says, and stays."""
    cases = [
        multiple_testing.Tested(
            old=row.old,
            new=row.new,
            ratio=row.ratio.value,
            alone=row.alone,
            margin=max(margin, _assumed(row.old, row.new)),
            assumed=_assumed(row.old, row.new),
        )
        for row in rows
        if row.ratio and row.tested
    ]
    held = iter(multiple_testing.upheld(cases))
    lost = [row.tested and not next(held) and row.alone in ("slower", "faster") for row in rows]
    return [
        replace(row, verdict="unclear", among=len(cases)) if unclear else row
        for row, unclear in zip(rows, lost, strict=True)
    ]


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
