"""A map of rates from each device or node to each other one, with the odd ones outlined."""

from dataclasses import dataclass

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from scalecard.figures import style

ODD = style.PALETTE[1]
SMALLEST, LARGEST = 5.0, 9.0  # points, of a number in a cell
DARK, LIGHT = "#111418", "#ffffff"  # numbers stand on the cells' own colours, in light and dark pages


@dataclass(frozen=True)
class Cell:
    """A link's rate in GB/s, and whether it is an odd one out."""

    rate: float
    odd: bool


Cells = dict[tuple[int, int], Cell]


def heat_map(cells: Cells, axes: Axes, *, width: float, what: str) -> None:
    """Numbers in the cells, if the axes' `width`, in points, leaves room for them; odd ones are outlined."""
    ends = sorted({end for pair in cells for end in pair})
    size = min(LARGEST, 0.45 * width / len(ends))
    top = max(cell.rate for cell in cells.values())
    colours = colormaps["Blues"]
    for (a, b), cell in cells.items():
        x, y, share = ends.index(b), ends.index(a), 0.1 + 0.8 * cell.rate / top
        edge = {"edgecolor": ODD, "linewidth": min(2.2, size / 4), "zorder": 3} if cell.odd else {"linewidth": 0}
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colours(share), **edge))
        if size >= SMALLEST:
            text = f"{cell.rate:.0f}" if cell.rate >= 10 else f"{cell.rate:.1f}"
            ink = LIGHT if share > 0.55 else DARK
            axes.text(x, y, text, ha="center", va="center", fontsize=size, color=ink, zorder=4)
    every = range(0, len(ends), 1 if size >= SMALLEST else 4)
    axes.set_xticks(list(every), [str(ends[place]) for place in every], fontsize="x-small")
    axes.set_yticks(list(every), [str(ends[place]) for place in every], fontsize="x-small")
    axes.grid(visible=False)
    last = len(ends) - 0.5
    axes.set(xlim=(-0.5, last), ylim=(last, -0.5), aspect="equal", xlabel=f"to {what}", ylabel=f"from {what}")
