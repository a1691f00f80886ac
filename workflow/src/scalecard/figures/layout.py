"""Where panels stand: two in a row, each as high as what it shows needs, with all of its text inside its own box.

Sections draw first. `finish` then gives each panel its box, writes the names of lines beside their ends, and moves what
would touch something else. Text keeps its size, so a narrower box has a narrower drawing.
"""

import textwrap
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from scalecard.figures import style

COLUMNS = 2  # of panels
ONE = 1.15  # widths of a panel, of one that has no other beside it
PAD = 0.06  # inches around what a panel shows
GAP = 11.5  # points from one name of a line to the next
EDGE = 1.02  # where names begin, in widths of the drawing
TITLE, ABOVE = 5.0, 12.0  # points between a drawing and its title, and what the name of a mark takes of them
NEAR = 3.0  # points that two ticks or a value and a mark keep apart
LEGEND = 0.06  # inches between a legend and what is above it
FOOT, FOOT_LINE = 6.5, 0.115  # points of the footer's letters, and inches from one line to the next
LETTERS = 18  # of the footer in an inch
ROUNDS = 4  # of measuring text and fitting the drawing; the third one moves it by less than a pixel
End = tuple[float | None, float, str, str]  # of a line: x (None at the panel's edge), y, its name, and its colour


@dataclass
class Panel:
    """What `finish` has to know of a panel besides its axes. `height` is in inches."""

    height: float = style.HEIGHT
    wide: bool = False
    legend: bool = False
    ends: list[End] = field(default_factory=list)
    names: list[Annotation] = field(default_factory=list)
    values: list[Annotation] = field(default_factory=list)  # right of their marks
    marks: list[float] = field(default_factory=list)  # x of lines from top to bottom
    inside: list[tuple[Text, float]] = field(default_factory=list)  # of bars so long: shown where there is room


_panels: "weakref.WeakKeyDictionary[Axes, Panel]" = weakref.WeakKeyDictionary()
_rows: "weakref.WeakKeyDictionary[Figure, list[list[Axes]]]" = weakref.WeakKeyDictionary()


def panel_of(axes: Axes) -> Panel:
    """What is known of this panel, to be added to."""
    return _panels.setdefault(axes, Panel())


def panels(count: int, *, wide: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels, at least one, two to a row; and a further one, as `wide` as a row."""
    figure = plt.figure()
    shown = [figure.add_axes((0.1, 0.1, 0.8, 0.8), label=str(place)) for place in range(max(1, count) + wide)]
    single = shown[: max(1, count)]
    rows = [single[place : place + COLUMNS] for place in range(0, len(single), COLUMNS)]
    for axes in shown[len(single) :]:
        panel_of(axes).wide = True
        rows.append([axes])
    _rows[figure] = rows
    return figure, shown


def name_line_end(axes: Axes, x: float | None, y: float, text: str, colour: str) -> None:
    """Remember the end of a line, at the panel's edge without `x`; `finish` writes its name beside it."""
    panel_of(axes).ends.append((x, y, text, colour))


def finish(figure: Figure, footer: Sequence[str] = (), *, column: float | None = None) -> list[Bbox]:
    """Place everything: before saving. Returns the panels' boxes in inches, in the order of the panels.

    The lines of `footer` are written below. With a `column`, in inches, panels stand below one another in its width.
    """
    if figure not in _rows and (figure.axes or figure.texts):  # made with a layout of its own
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # or each format would compute the same layout again
        return []
    rows = _rows.setdefault(figure, [])  # of an empty figure the footer alone is shown
    rows = rows if column is None else [[axes] for row in rows for axes in row]
    across = max((len(row) for row in rows), default=1)
    width = column or style.WIDTH * max(across, ONE)
    lines = [part for line in footer for part in textwrap.wrap(line, int(LETTERS * width))]
    for text in figure.texts:
        text.remove()  # the footer of another width
    heights = [max(panel_of(axes).height for axes in row) for row in rows]
    top = sum(heights) + FOOT_LINE * len(lines) + PAD * bool(lines)
    figure.set_size_inches(width, top)
    if lines:
        look: dict[str, Any] = {"fontsize": FOOT, "color": style.colour("ideal"), "va": "bottom", "linespacing": 1.2}
        figure.text(PAD / width, PAD / top, "\n".join(lines), **look)
    boxes, renderer = list[Bbox](), FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    for row, height in zip(rows, heights, strict=True):
        top -= height
        for place, axes in enumerate(row):
            own = width if panel_of(axes).wide else width / across
            boxes.append(Bbox.from_bounds(place * own, top, own, height))
            _fit(axes, boxes[-1].padded(-PAD), renderer)
    return boxes


def _fit(axes: Axes, box: Bbox, renderer: RendererBase) -> None:
    """Make the drawing as large as the box, in inches, allows with its title, ticks, labels, names and legend."""
    figure, panel = axes.get_figure(root=True), panel_of(axes)
    assert isinstance(figure, Figure)
    dpi, inner = figure.dpi, Bbox(box.get_points() * figure.dpi)
    above = TITLE + ABOVE * bool(panel.marks)
    title = axes.set_title(" ".join(axes.get_title(loc="left").split()), loc="left", pad=above)
    for text in (title, axes.xaxis.label):
        _wrap(text, inner.width, renderer)
    over = title.get_window_extent(renderer).height + above * dpi / 72 if title.get_text() else 0.0
    below = _legend(axes, box, renderer) * dpi
    title.set_visible(False)  # it has the width of the box, not that of the drawing
    to_figure, place = figure.transFigure.inverted(), inner
    for _ in range(ROUNDS):
        axes.set_position(place.transformed(to_figure))
        axes.apply_aspect()
        _thin(axes.xaxis)
        _place_names(axes)
        _beside_marks(axes, renderer)
        shown = axes.get_tightbbox(renderer, for_layout_only=True)
        assert shown
        drawing = axes.get_position().transformed(figure.transFigure)
        highest = inner.y1 - max(over, shown.y1 - drawing.y1)
        left, right = inner.x0 + drawing.x0 - shown.x0, inner.x1 - (shown.x1 - drawing.x1)
        place = Bbox.from_extents(left, inner.y0 + below + drawing.y0 - shown.y0, max(right, left + 1), highest)
    drawing, label = axes.get_position().transformed(figure.transFigure), axes.xaxis.label
    for text, length in panel.inside:
        room = length / (axes.get_xlim()[1] - axes.get_xlim()[0]) * drawing.width
        text.set_visible(text.get_window_extent(renderer).width < room)
    title.set_visible(True)
    title.set_x((inner.x0 - drawing.x0) / drawing.width)
    extent = label.get_window_extent(renderer)
    aside = max(0.0, inner.x0 - extent.x0) - max(0.0, extent.x1 - inner.x1)
    label.set_x(label.get_position()[0] + aside / drawing.width)


def _wrap(text: Text, width: float, renderer: RendererBase) -> None:
    """In as many lines as it takes; in one, if that fits."""
    whole = " ".join(text.get_text().split())
    text.set_text(whole)
    letters = len(whole)
    while text.get_window_extent(renderer).width > width and letters > 1:
        letters -= 1
        text.set_text(textwrap.fill(whole, letters))


def _legend(axes: Axes, box: Bbox, renderer: RendererBase) -> float:
    """At the bottom of the box, without repeated entries, in as few rows as fit; returns its height in inches."""
    if not panel_of(axes).legend:
        return 0.0
    handles, labels = axes.get_legend_handles_labels()
    unique, figure = dict(zip(labels, handles, strict=True)), axes.get_figure(root=True)
    assert isinstance(figure, Figure)
    for columns in (4, 3, 2, 1):
        legend = axes.legend(
            unique.values(),
            unique.keys(),
            frameon=False,
            fontsize="small",
            loc="lower left",
            bbox_to_anchor=(box.x0, box.y0),
            bbox_transform=figure.dpi_scale_trans,
            borderaxespad=0,
            borderpad=0,
            ncols=columns,
        )
        legend.set_in_layout(False)
        extent = legend.get_window_extent(renderer)
        if extent.width <= box.width * figure.dpi:
            break
    return extent.height / figure.dpi + LEGEND


def _thin(axis: Axis) -> None:
    """Leave out every second tick until none touches the next one."""
    figure = axis.get_figure(root=True)
    assert isinstance(figure, Figure)
    near = NEAR * figure.dpi / 72
    while True:
        low, high = sorted(axis.get_view_interval())
        ticks = [
            (place, label)
            for place, label in zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
            if low <= place <= high and label.get_text()
        ]
        extents = sorted((label.get_window_extent() for _, label in ticks), key=lambda extent: extent.x0)
        if all(left.x1 + near <= right.x0 for left, right in pairwise(extents)):
            return
        axis.set_ticks([place for place, _ in ticks[::2]], [label.get_text() for _, label in ticks[::2]])


def _place_names(axes: Axes) -> None:
    """Write the names right of the panel, each joined to its line's end; again if the panel has another size."""
    panel, to_share = panel_of(axes), axes.transData + axes.transAxes.inverted()
    ends = [(axes.get_xlim()[1] if x is None else x, y, text, colour) for x, y, text, colour in panel.ends]
    for x, y, text, colour in ends[len(panel.names) :]:
        arrow = {"arrowstyle": "-", "color": colour, "linewidth": 0.5, "relpos": (0, 0.5), "shrinkA": 0}
        name = axes.annotate(
            text,
            (x, y),
            (EDGE, 0),
            textcoords="axes fraction",
            arrowprops=arrow,
            fontsize="small",
            va="center",
            color=colour,
            annotation_clip=False,
        )
        panel.names.append(name)
    heights = [float(to_share.transform(end[:2])[1]) for end in ends]
    order = sorted(range(len(ends)), key=lambda place: -heights[place])
    figure = axes.get_figure(root=True)
    assert isinstance(figure, Figure)
    gap = GAP * figure.dpi / 72 / axes.bbox.height
    for place, height in zip(order, moved_apart([heights[place] for place in order], gap), strict=True):
        panel.names[place].set_position((EDGE, height))


def moved_apart(heights: Sequence[float], gap: float) -> list[float]:
    """Descending heights, moved apart to where texts do not overlap: down from the first, and up from the axis."""
    moved: list[float] = []
    for height in heights:
        moved.append(min(height, moved[-1] - gap) if moved else min(1.0, height))
    for index in reversed(range(len(moved))):
        floor = moved[index + 1] + gap if index + 1 < len(moved) else 0.0
        moved[index] = max(moved[index], floor)
    return moved


def _beside_marks(axes: Axes, renderer: RendererBase) -> None:
    """Move values to the right of a mark that would cross them."""
    panel, figure = panel_of(axes), axes.get_figure(root=True)
    assert isinstance(figure, Figure)
    points = figure.dpi / 72
    marks = sorted(float(axes.transData.transform((x, 0))[0]) for x in panel.marks)
    for value in panel.values:
        value.set_position((style.BESIDE, 0))
        for mark in marks:
            extent = value.get_window_extent(renderer)
            if extent.x0 - NEAR * points < mark < extent.x1:
                aside = style.BESIDE + (mark - extent.x0) / points + NEAR
                value.set_position((aside, 0))
