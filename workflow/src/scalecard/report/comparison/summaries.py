"""Compared cases by kind of work: how many of each changed, by how much, and what became of them as a whole.

A kind is an experiment; parts of `health` that changed, which share no more than a name, are one each. The verdicts are
those of the cases, which hold among all of them; a group has none of its own.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from scalecard.analysis import formatting
from scalecard.analysis.comparison.compare import Row
from scalecard.report import toc

CHANGED = ("slower", "faster")


class Outcome(Enum):
    """Outcomes of a group of cases."""

    CHANGED = "some became slower or faster"
    UNCHANGED = "all are the same"
    PARTLY_UNCHANGED = "some are the same, the others cannot be told"
    UNCLEAR = "cannot be told"
    TOO_FEW_SAMPLES = "cannot be told, because nothing has an interval"
    NOT_COMPARED = "all are different work"


@dataclass(frozen=True)
class Group:
    """Cases of one kind, or of several that are told together. `median`, `low` and `high` are B / A over the cases."""

    label: str
    rows: Sequence[Row]

    @property
    def compared(self) -> list[Row]:
        """The cases with a ratio."""
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
        """True if any case became slower or faster."""
        return any(row.verdict in CHANGED for row in self.rows)

    def count(self, verdict: str) -> int:
        """Number of cases with this verdict."""
        return sum(row.verdict == verdict for row in self.rows)

    @property
    def outcome(self) -> Outcome:
        """The outcome of all cases together."""
        if not self.compared:
            return Outcome.NOT_COMPARED
        if self.changed:
            return Outcome.CHANGED
        if same := self.count("same"):
            return Outcome.UNCHANGED if same == len(self.compared) else Outcome.PARTLY_UNCHANGED
        return Outcome.UNCLEAR if any(row.tested for row in self.rows) else Outcome.TOO_FEW_SAMPLES

    @property
    def span(self) -> str:
        """'+7.0 % to +8.1 %', over the cases; '' of one case, or of none."""
        ratios = self.ratios
        return formatting.changes(ratios[0], ratios[-1]) if len(ratios) > 1 else ""


def grouped(rows: Sequence[Row], label: Callable[[str], str] = toc.label) -> list[Group]:
    """A group for each kind of work, those that changed the most first, then in the page's order.

    `label` names an experiment.
    """
    names = toc.in_order(sorted({row.experiment for row in rows}))
    own = {name: Group(label(name), [row for row in rows if row.experiment == name]) for name in names}
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
