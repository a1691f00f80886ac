"""The report's part on another platform beside the current one: a table, a forest plot, speed-ups.

A forest plot shows for each kind of work the median change of its cases, and the range of them. The page draws the
marks in a table beside the numbers (forest.html.j2): nothing depends on the drawing, and a phone shows them too.

Speed-ups are over another platform of unlike hardware: of each experiment the geometric mean, over the cases that both
have, of time there / time here. Launching is left out, which is the host's work and not the device's. Beside it stands
what the experiment's section says first on each of the two.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

from scalecard.analysis import formatting, platforms
from scalecard.analysis.compare import Change, Comparison, Row, changes, compare
from scalecard.analysis.platforms import UNFIT, each_fit
from scalecard.records.record import Result
from scalecard.report import changes_text, toc
from scalecard.report.changes_text import CHANGED, Group, grouped
from scalecard.report.section import Brief, Section
from scalecard.report.table import EMPTY, Cell, Table

MOST_CASES = 40  # `scalecard compare` has all of them
HEAD = ("verdict", "change of time", "95 % interval", "A", "B", "experiment", "case")
MOST_ROWS = 12
ENDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # of the axis; beyond the last, a whisker is cut off
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
        return geometric_mean(self.ratios) if self.ratios else None

    @property
    def reason(self) -> str:
        """Why there are no ratios, or ''."""
        if self.ratios:
            return ""
        return changes_text.different_workload(self.differing) if self.differing else NOTHING_IN_COMMON


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if 0.01 <= ratio < 10 else f"{formatting.number(ratio)}x"


def headlines(results: Sequence[Result]) -> Headlines:
    """Headlines of the results; one that lacks what its section needs says nothing."""
    found, _ = each_fit(results, Brief.of, here="")
    return {brief.result.experiment: brief.headline for brief in found}


def speed_ups(rows: Sequence[Row], old: Headlines, new: Headlines) -> list[SpeedUp]:
    """A speed-up for each experiment that both have, in the page's order."""
    found = []
    for name in toc.in_order({row.experiment for row in rows} | (old.keys() & new.keys())):
        own = [row for row in rows if row.experiment == name]
        ratios = sorted(1 / row.ratio.value for row in own if row.ratio and row.metric != "enqueue_time")
        differing = next((row.differing for row in own if row.differing), ())
        said = {"old": old.get(name, ""), "new": new.get(name, "")}
        found.append(SpeedUp(experiment=name, ratios=ratios, differing=differing, **said))
    return found


def table_of_speed_ups(found: Sequence[SpeedUp], names: tuple[str, str]) -> Table:
    """A row per experiment; `names` say what the platforms are, the old one's first."""
    old, new = names
    rows = []
    for each in found:
        ratios, mean = each.ratios, each.mean
        why_not = changes_text.DIFFERENT_WORKLOAD if each.differing else NOTHING_IN_COMMON
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


@dataclass(frozen=True, kw_only=True)
class Forest:
    """The groups that are shown and those that are folded away, on an axis of B / A from `low` to `high`."""

    shown: Sequence[Group]
    folded: Sequence[Group]
    margin: float
    low: float
    high: float

    def place(self, ratio: float) -> float:
        """Where a ratio is, in per cent of the plot's width: at an end if it is beyond it."""
        inside = min(max(ratio, self.low), self.high)
        return round(100 * (inside - self.low) / (self.high - self.low), 2)


def forest(groups: Sequence[Group], margin: float) -> Forest | None:
    """The plot of those groups that were compared, in their order; None if there is none.

    The axis goes far enough for the whiskers, but medians are to be told apart; no time falls by more than 100 %.
    """
    shown = [group for group in groups if group.compared]
    if not shown:
        return None
    middles = [abs(group.median - 1) for group in shown if group.median]
    whiskers = [abs(ratio - 1) for group in shown for ratio in group.ratios]
    wanted = max(2 * margin, min(max(whiskers), 3 * max(*middles, 2 * margin)))
    end = next((end for end in ENDS if end >= wanted - 1e-9), ENDS[-1])
    low, high = 1 - min(end, 1.0), 1 + end
    return Forest(shown=shown[:MOST_ROWS], folded=shown[MOST_ROWS:], margin=margin, low=low, high=high)


def cases(rows: Sequence[Row], label: str, *, doubts: bool = False) -> Table:
    """A row per case; `doubts` of their samples are shown below them."""
    head = [name[0].upper() + name[1:] for name in HEAD]
    return Table(label, head, [_cells(row, row.doubts if doubts else ()) for row in rows])


def _cells(row: Row, doubts: Sequence[str]) -> list[Cell]:
    """In the order of HEAD."""
    ratio, reason = row.ratio, changes_text.reason(row)
    interval = ratio and ratio.interval
    return [
        Cell(row.verdict),
        Cell(formatting.change(ratio.value), ratio.value) if ratio else EMPTY,
        Cell(formatting.changes(interval.low, interval.high) if interval else reason or "too few samples"),
        Cell(formatting.seconds(row.old.median), row.old.median),
        Cell(formatting.seconds(row.new.median), row.new.median),
        Cell(toc.label(row.experiment)),
        Cell(f"{case(row)} ({reason})" if ratio and row.among else case(row), remarks=doubts),
    ]


def case(row: Row) -> str:
    """'enqueue time, mode single, size 4000': the metric, unless it is a plain time, and the case."""
    return ", ".join([*([] if row.metric == "time" else [formatting.spaced(row.metric)]), formatting.case(row.case)])


def part(other: Sequence[Section], current: Sequence[Section]) -> dict[str, Any]:
    """The values of changes.html.j2 for one other platform: what changed or, of unlike hardware, the speed-ups."""
    old, new = [s.result for s in other], [s.result for s in current]
    try:
        found, refusal = compare(old, new), ""
    except UNFIT as error:
        found, refusal = None, str(error)
    differ = changes(old[0].environment, new[0].environment)
    if platforms.same_hardware(old, new):
        shown = _of_like(found) if found else {"told": f"{changes_text.occasion(differ)}: {refusal}."}
        return {"platform": other[0].platform, "changes": list(map(changes_text.change, differ)), **shown}
    names = platforms.nicknames(old, new)
    software = [changes_text.change(each) for each in differ if each.fact.key in changes_text.SOFTWARE]
    notes = [f"Besides the hardware, these differ: {'; '.join(software)}."] if software else []
    if found and any(found.only.values()):
        notes.append(f"{found.only['B']} cases were measured only on {names[1]}, {found.only['A']} only on {names[0]}.")
    said = ({section.name: section.headline for section in side} for side in (other, current))
    faster = speed_ups(found.rows if found else [], *said)
    return {"platform": other[0].platform, "speed_ups": table_of_speed_ups(faster, names), "notes": notes}


def _of_like(found: Comparison) -> dict[str, Any]:
    changed = [row for row in found.rows if row.verdict in CHANGED]
    changed.sort(key=lambda row: abs(math.log(row.ratio.value)) if row.ratio else 0.0, reverse=True)
    shown = [*changed, *(row for row in found.rows if row.verdict == "not compared")]
    return {
        "told": changes_text.sentence(found),
        "notes": [f"{changes_text.headline(found)}.", *changes_text.notes(found)[1:]],
        "forest": forest(grouped(found.rows), found.margin),
        "cases": cases(shown[:MOST_CASES], f"Cases that changed since {found.old}") if shown else None,
        "num_cases": len(shown),
    }
