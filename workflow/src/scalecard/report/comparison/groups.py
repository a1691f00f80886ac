"""Compared cases by kind of work: how many of each changed, by how much, and which verdicts they have.

A kind is an experiment; parts of `health` that changed, which share no more than a name, are one each. The verdicts are
those of the cases, which hold among all of them; a group has none of its own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from scalecard.progress import counted
from scalecard.report import contents, units
from scalecard.report.comparison.compare import Row

CHANGED = ("slower", "faster")


@dataclass(frozen=True)
class Group:
    """Cases of one kind, or of several that are told together. `median`, `low` and `high` are B / A over the cases."""

    label: str
    rows: Sequence[Row]

    @property
    def compared(self) -> list[Row]:
        """Those with a ratio."""
        return [row for row in self.rows if row.ratio]

    @property
    def ratios(self) -> list[float]:
        """B / A of each case that was compared, the smallest first."""
        return sorted(row.ratio.value for row in self.rows if row.ratio)

    @property
    def median(self) -> float | None:
        """None if nothing was compared."""
        return median(self.ratios) if self.ratios else None

    @property
    def changed(self) -> bool:
        """Whether any case became slower or faster."""
        return any(row.verdict in CHANGED for row in self.rows)

    def count(self, verdict: str) -> int:
        """How many cases have it."""
        return sum(row.verdict == verdict for row in self.rows)

    @property
    def told(self) -> str:
        """What became of the cases: '7 to 8 % slower in 27 of 27 cases', 'unchanged', 'cannot be told'."""
        whole, same = len(self.compared), self.count("same")
        if not whole:
            return "not compared (different workload)"
        if self.changed:
            return " and ".join(self._told_of(verdict) for verdict in CHANGED if self.count(verdict))
        if same == whole:
            return "unchanged"
        if same:
            return f"unchanged in {same} of {counted(whole, 'case')}, the others cannot be told"
        return "cannot be told" + ("" if any(row.tested for row in self.rows) else " (too few samples)")

    def _told_of(self, verdict: str) -> str:
        own = [row.ratio.value for row in self.rows if row.ratio and row.verdict == verdict]
        return f"{_span(own)} {verdict} in {len(own)} of {counted(len(self.compared), 'case')}"

    @property
    def span(self) -> str:
        """'+7.0 % to +8.1 %', over the cases; '' of one case, or of none."""
        ratios = self.ratios
        return units.changes(ratios[0], ratios[-1]) if len(ratios) > 1 else ""


def grouped(rows: Sequence[Row]) -> list[Group]:
    """A group for each kind of work, those that changed the most first, then in the page's order."""
    names = contents.in_order(sorted({row.experiment for row in rows}))
    own = {name: Group(contents.label(name), [row for row in rows if row.experiment == name]) for name in names}
    found = [part for name, group in own.items() for part in (_parts(group) if name == "health" else [group])]
    return sorted(found, key=_by_change)


def together(groups: Sequence[Group]) -> Group:
    """Several as one: 'copies, pipelines and loading data'."""
    return Group(listed([group.label for group in groups]), [row for group in groups for row in group.rows])


def listed(parts: Sequence[str]) -> str:
    """'a, b and c'."""
    return " and ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)


def _parts(health: Group) -> list[Group]:
    """The parts of which a case changed, and one group of the others."""
    names = dict.fromkeys(row.case.get("part") for row in health.rows)
    parts = {name: [row for row in health.rows if row.case.get("part") == name] for name in names}
    changed = [part for name, rows in parts.items() if (part := Group(f"{health.label} ({name})", rows)).changed]
    others = [row for row in health.rows if not any(row in part.rows for part in changed)]
    label = f"{health.label} (other parts)" if changed else health.label
    return [*changed, *([Group(label, others)] if others else [])]


def _by_change(group: Group) -> tuple[int, float]:
    """What became slower comes first, then what became faster, each by how much; what was not compared is last."""
    slower, faster = group.count("slower"), group.count("faster")
    size = abs(math.log(group.median)) if group.median else 0.0
    if not (slower or faster):
        return (2 if group.median else 3), 0.0
    return (0 if slower >= faster else 1), -size


def _span(ratios: Sequence[float]) -> str:
    """'7 to 8 %', by which times changed; a digit more where whole per cents would be none."""
    changes = sorted(100 * abs(ratio - 1) for ratio in ratios)
    digits = 0 if changes[0] >= 0.95 else 1
    return " to ".join(dict.fromkeys(f"{each:,.{digits}f}" for each in (changes[0], changes[-1]))) + " %"
