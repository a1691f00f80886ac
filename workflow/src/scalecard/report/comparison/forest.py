"""A forest plot of a comparison: for each kind of work the median change of its cases, and the range of them.

Places are per cents of the plot's width, on an axis that is linear in the change of time. The page draws the marks in
a table beside the numbers, so that nothing depends on the drawing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scalecard.analysis import formatting
from scalecard.report.comparison import sentences
from scalecard.report.comparison.summaries import CHANGED, Group

MOST_ROWS = 12
ENDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # of the axis; beyond the last, a whisker is cut off


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A row. `at`, `low` and `high` are places; `beyond` says on which sides the whisker goes beyond the axis."""

    label: str
    told: str
    value: str
    span: str
    look: str
    at: float
    low: float
    high: float
    beyond: str


@dataclass(frozen=True, kw_only=True)
class Forest:
    """The rows, the axis with its labels, the shaded margin, and the rows that are folded away."""

    rows: list[Mark]
    folded: list[Mark]
    ends: tuple[str, str]
    zero: float
    band: tuple[float, float]  # where it begins, and its width
    margin: str


@dataclass(frozen=True)
class _Axis:
    """From which change of time to which, as fractions."""

    low: float
    high: float

    def place(self, change: float) -> float:
        """At an end for what is beyond it."""
        inside = min(max(change, self.low), self.high)
        return round(100 * (inside - self.low) / (self.high - self.low), 2)


def forest(groups: Sequence[Group], margin: float) -> Forest | None:
    """The plot of those groups that were compared, in their order; None if there is none."""
    shown = [group for group in groups if group.compared]
    if not shown:
        return None
    axis = _axis(shown, margin)
    rows = [_mark(group, axis) for group in shown]
    start, end = axis.place(1 / (1 + margin) - 1), axis.place(margin)
    return Forest(
        rows=rows[:MOST_ROWS],
        folded=rows[MOST_ROWS:],
        ends=(f"{100 * axis.low:+.0f} %", f"{100 * axis.high:+.0f} %"),
        zero=axis.place(0),
        band=(start, round(end - start, 2)),
        margin=f"{100 * margin:g} %",
    )


def _axis(groups: Sequence[Group], margin: float) -> _Axis:
    """Far enough for the whiskers, but medians are to be told apart; no time falls by more than 100 %."""
    middles = [abs(group.median - 1) for group in groups if group.median]
    whiskers = [abs(ratio - 1) for group in groups for ratio in group.ratios]
    wanted = max(2 * margin, min(max(whiskers), 3 * max(*middles, 2 * margin)))
    end = next((end for end in ENDS if end >= wanted - 1e-9), ENDS[-1])
    return _Axis(-min(end, 1.0), end)


def _mark(group: Group, axis: _Axis) -> Mark:
    assert group.median
    low, high = group.ratios[0] - 1, group.ratios[-1] - 1
    most = max(CHANGED, key=group.count)
    return Mark(
        label=group.label,
        told=sentences.outcome(group),
        value=formatting.change(group.median),
        span=group.span,
        look=most if group.changed else "same",
        at=axis.place(group.median - 1),
        low=axis.place(low),
        high=axis.place(high),
        beyond=" ".join(name for name, is_so in (("low", low < axis.low), ("high", high > axis.high)) if is_so),
    )
