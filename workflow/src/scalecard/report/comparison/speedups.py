"""Speed-ups of one platform over another of unlike hardware, experiment by experiment.

Over the cases that both have: the geometric mean of time there / time here, and its range. Launching is left out, which
is the host's work and not the device's. Beside it stands what the experiment's section says first on each of the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from scalecard.analysis import formatting
from scalecard.analysis.comparison.compare import Change, Row
from scalecard.analysis.load_results import each_fit
from scalecard.records.record import Result
from scalecard.report import toc
from scalecard.report.comparison import sentences
from scalecard.report.platform_rows import Brief
from scalecard.report.table import Cell, Table

NOTE = (
    "How many times as fast: the time on the second over the time on the first, case by case; the geometric mean, and"
    " the range over the cases that both have. Launching alone is left out."
)
NOTHING_IN_COMMON = "no case in common"
Headlines = Mapping[str, str]  # by experiment


@dataclass(frozen=True, kw_only=True)
class SpeedUp:
    """Of one experiment the `ratios` A / B in time, the smallest first; none if settings are `differing`."""

    experiment: str
    ratios: Sequence[float]
    differing: Sequence[Change]
    old: str
    new: str

    @property
    def mean(self) -> float | None:
        """The geometric mean."""
        return geometric_mean(self.ratios) if self.ratios else None

    @property
    def reason(self) -> str:
        """Why there are no ratios, or ''."""
        if self.ratios:
            return ""
        return sentences.different_workload(self.differing) if self.differing else NOTHING_IN_COMMON


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if 0.01 <= ratio < 10 else f"{formatting.number(ratio)}x"


def headlines(results: Sequence[Result]) -> Headlines:
    """Headlines of the results; one that lacks what its section needs says nothing."""
    found, _ = each_fit(results, Brief.of, here="")
    return {brief.experiment: brief.headline for brief in found}


def speed_ups(rows: Sequence[Row], old: Headlines, new: Headlines) -> list[SpeedUp]:
    """A speed-up for each experiment that both have, in the page's order."""
    names = toc.in_order({row.experiment for row in rows} | (old.keys() & new.keys()))
    return [_speed_up(name, [r for r in rows if r.experiment == name], old, new) for name in names]


def _speed_up(name: str, rows: Sequence[Row], old: Headlines, new: Headlines) -> SpeedUp:
    ratios = sorted(1 / row.ratio.value for row in rows if row.ratio and row.metric != "enqueue_time")
    differing = next((row.differing for row in rows if row.differing), ())
    return SpeedUp(experiment=name, ratios=ratios, differing=differing, old=old.get(name, ""), new=new.get(name, ""))


def table(found: Sequence[SpeedUp], names: tuple[str, str]) -> Table:
    """A row per experiment; `names` say what the platforms are, the old one's first."""
    old, new = names
    rows = []
    for each in found:
        ratios, mean = each.ratios, each.mean
        why_not = sentences.DIFFERENT_WORKLOAD if each.differing else NOTHING_IN_COMMON
        span = f"{_times(ratios[0])} to {_times(ratios[-1])}" if len(ratios) > 1 else ""
        rows.append(
            {
                "Experiment": toc.label(each.experiment),
                "Speed-up": Cell(_times(mean), mean) if mean else why_not,
                "Range": Cell(span, ratios[0]) if span else "",
                "Cases": Cell(str(len(ratios)), len(ratios)),
                new: each.new,
                old: each.old,
            }
        )
    return Table.of(f"{new} beside {old}", rows, NOTE)
