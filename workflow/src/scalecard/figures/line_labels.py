"""Names at the ends of lines, instead of a legend: one below the other where lines end close together."""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

GAP = 0.066  # of the height of a panel, between two names
EDGE = 1.02  # where names begin, in widths of the panel


@dataclass(frozen=True)
class End:
    """The last point of a line, in the axes' own numbers."""

    x: float
    y: float
    text: str
    colour: str


_ends: "weakref.WeakKeyDictionary[Axes, list[End]]" = weakref.WeakKeyDictionary()


def name(axes: Axes, x: float, y: float, text: str, colour: str) -> None:
    """Remember the end of a line; `place` writes its name when the axes have their limits."""
    _ends.setdefault(axes, []).append(End(x, y, text, colour))


def place(axes: Axes) -> None:
    """Write the names right of the panel, each joined to its line's end."""
    found = _ends.pop(axes, [])
    axes.apply_aspect()
    to_share = axes.transData + axes.transAxes.inverted()
    heights = {end: float(to_share.transform((end.x, end.y))[1]) for end in found}
    ordered = sorted(found, key=lambda end: -heights[end])
    for end, height in zip(ordered, apart([heights[end] for end in ordered]), strict=True):
        axes.annotate(
            end.text,
            (end.x, end.y),
            (EDGE, height),
            textcoords="axes fraction",
            arrowprops={"arrowstyle": "-", "color": end.colour, "linewidth": 0.5, "relpos": (0, 0.5), "shrinkA": 0},
            fontsize="small",
            va="center",
            color=end.colour,
            annotation_clip=False,
        )


def apart(heights: Sequence[float]) -> list[float]:
    """Descending heights, moved apart to where texts do not overlap: down from the first, and up from the axis."""
    moved: list[float] = []
    for height in heights:
        moved.append(min(height, moved[-1] - GAP) if moved else min(1.0, height))
    for index in reversed(range(len(moved))):
        floor = moved[index + 1] + GAP if index + 1 < len(moved) else 0.0
        moved[index] = max(moved[index], floor)
    return moved
