"""A forest plot of a comparison: for each kind of work the median change of its cases, and the range of them.

The page draws the marks in a table beside the numbers (forest.html.j2), so that nothing depends on the drawing, and
that a phone shows them too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scalecard.report.comparison.summaries import Group

MOST_ROWS = 12
ENDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # of the axis; beyond the last, a whisker is cut off


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
