"""The kinds of chart that the sections draw: every value with its interval, named where it is drawn.

Lines are named at their ends and bars carry their values, so that few figures need a legend. points.py remembers what
is shown. `finish` places the names, once all limits are known. `look` is what `Axes.set` takes, such as labels.
"""

import math
import textwrap
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator, NullFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation

from scalecard.analysis import formatting
from scalecard.figures import points, style
from scalecard.figures.points import Point
from scalecard.records.record import Record, Result

COLUMNS = 2  # of panels
BAR = 0.27  # inches of height for each bar
WHISKER: dict[str, Any] = {"color": style.INK, "linewidth": 1.1}
GAP = 0.066  # of the height of a panel, between two names
TITLE = 42  # letters of a panel's title in one line
EDGE = 1.02  # where names begin, in widths of the panel
ODD = style.PALETTE[1]
SMALLEST, LARGEST = 5.0, 9.0  # points, of a number in a cell
LANE = 300.0  # points, of the length of a lane in a panel as wide as a row
DARK, LIGHT = "#111418", "#ffffff"  # numbers stand on the cells' own colours, in light and dark pages
Pair = tuple[int, int]  # of devices or nodes: from the first to the second
End = tuple[float, float, str, str]  # the last point of a line in the axes' own numbers, its name, and its colour
_ends: "weakref.WeakKeyDictionary[Axes, list[End]]" = weakref.WeakKeyDictionary()


def name_line_end(axes: Axes, x: float, y: float, text: str, colour: str) -> None:
    """Remember the end of a line; `finish` writes its name when the axes have their limits."""
    _ends.setdefault(axes, []).append((x, y, text, colour))


def _place_names(axes: Axes) -> None:
    """Write the names right of the panel, each joined to its line's end."""
    axes.apply_aspect()
    to_share = axes.transData + axes.transAxes.inverted()
    heights = {end: float(to_share.transform(end[:2])[1]) for end in _ends.pop(axes, [])}
    ordered = dict(sorted(heights.items(), key=lambda item: -item[1]))
    for (x, y, text, colour), height in zip(ordered, moved_apart([*ordered.values()]), strict=True):
        axes.annotate(
            text,
            (x, y),
            (EDGE, height),
            textcoords="axes fraction",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "relpos": (0, 0.5), "shrinkA": 0},
            fontsize="small",
            va="center",
            color=colour,
            annotation_clip=False,
        )


def moved_apart(heights: Sequence[float]) -> list[float]:
    """Descending heights, moved apart to where texts do not overlap: down from the first, and up from the axis."""
    moved: list[float] = []
    for height in heights:
        moved.append(min(height, moved[-1] - GAP) if moved else min(1.0, height))
    for index in reversed(range(len(moved))):
        floor = moved[index + 1] + GAP if index + 1 < len(moved) else 0.0
        moved[index] = max(moved[index], floor)
    return moved


def panels(count: int, *, height: float = style.HEIGHT, wide: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels, two to a row, each `height` inches high; and a further one, as `wide` as a row."""
    columns = min(COLUMNS, max(1, count))
    rows = math.ceil(max(1, count) / columns) + wide
    size = (style.WIDTH * max(columns, 1.25), height * rows)
    figure, grid = plt.subplots(rows, columns, squeeze=False, figsize=size)
    for axes in list(grid.flat)[max(1, count) :]:
        axes.remove()
    row = [figure.add_subplot(grid[-1, 0].get_gridspec()[-1, :])] if wide else []
    return figure, [*list(grid.flat)[: max(1, count)], *row]


def title(axes: Axes, text: str) -> None:
    """Above a panel, in as many lines as it takes."""
    axes.set_title(textwrap.fill(text, TITLE))


def curves(
    shown: Sequence[Point],
    axes: Axes,
    *,
    unit: str,
    x_unit: str = "",
    named: bool = True,
    ticked: bool = False,
    **look: Any,
) -> None:
    """A line for each series, or for each platform if there are several, with a band over the intervals.

    `ticked` asks for ticks at the values of x.
    """
    kinds = _kinds(shown)
    for kind in dict.fromkeys(kinds):
        own = sorted((point for point, own_kind in zip(shown, kinds, strict=True) if own_kind == kind), key=_number)
        colour, xs = style.colour(kind), list(map(_number, own))
        axes.plot(xs, [point.value for point in own], color=colour, linewidth=1.7)
        axes.fill_between(
            xs, [point.low for point in own], [point.high for point in own], color=colour, alpha=0.2, linewidth=0
        )
        for point, x in zip(own, xs, strict=True):
            axes.plot(
                [x], [point.value], style.marker(kind), color=colour, ms=5, gid=points.show(axes, point, unit, x_unit)
            )
        if named:
            name_line_end(axes, xs[-1], own[-1].value, kind, colour)
    if shown:
        number_axis(axes.yaxis, unit)
    else:
        nothing(axes)
    axes.set(**look)
    if ticked:
        ticks(axes, numbers(shown))


def _kinds(shown: Sequence[Point]) -> list[str]:
    """What tells each point's line or bars from others: its series or, if there are several platforms, its platform."""
    several = len({point.platform for point in shown}) > 1
    return [point.platform if several else point.series for point in shown]


def numbers(shown: Sequence[Point]) -> list[float]:
    """The values of x, each once and in order."""
    return sorted(set(map(_number, shown)))


def _number(point: Point) -> float:
    assert not isinstance(point.x, str)
    return float(point.x)


def bars(shown: Sequence[Point], axes: Axes, *, unit: str, **look: Any) -> None:
    """Horizontal bars with whiskers over the intervals and values at their ends, from the top in the given order.

    Bars of the same `x` lie beside one another: one for each series, or each platform if there are several. The first
    of each says what it is. The names of bars say what a label of their axis would.
    """
    rows, kinds, named = list(dict.fromkeys(point.x for point in shown)), _kinds(shown), set[str]()
    every = list(dict.fromkeys(kinds))
    for point, kind in zip(shown, kinds, strict=True):
        height = 0.76 / len(every)
        place = rows.index(point.x) + height * (every.index(kind) - (len(every) - 1) / 2)
        axes.barh([place], [point.value], height, color=style.colour(kind), gid=points.show(axes, point, unit))
        if point.interval:
            axes.plot([point.low, point.high], [place, place], **WHISKER)
        name = f" {kind}" if len(every) > 1 and kind not in named else ""
        beside(axes, point.high, place, f"{formatting.of(point.value, unit)}{name}")
        named.add(kind)
    if shown:
        axes.set_yticks(range(len(rows)), [str(row) for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        number_axis(axes.xaxis, unit)
        axes.xaxis.set_major_locator(MaxNLocator(3))
        axes.margins(x=0.28)  # the values
    else:
        nothing(axes)
    axes.set(**{"ylabel": "", **look})


def stacks(shown: Sequence[Point], axes: Axes, *, unit: str, hatched: Mapping[str, str] | None = None) -> None:
    """A bar for each series, from the top in the given order, of its values: what they are of is their `x`.

    What is below zero has no length. `hatched` parts have a pattern instead of a colour.
    """
    rows, parts = list(dict.fromkeys(p.series for p in shown)), list(dict.fromkeys(str(p.x) for p in shown))
    starts = dict.fromkeys(rows, 0.0)
    for part in parts:
        hatch = (hatched or {}).get(part, "")
        fill, edge = ("none", style.colour(part)) if hatch else (style.colour(part), "none")
        look: dict[str, Any] = {"color": fill, "edgecolor": edge, "hatch": hatch, "height": 0.62, "label": part}
        for point in (point for point in shown if point.x == part):
            width, start = max(0.0, point.value), starts[point.series]
            place, mark = rows.index(point.series), points.show(axes, point, unit)
            axes.barh([place], [width], left=[start], gid=mark, **look)
            starts[point.series] += width
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    number_axis(axes.xaxis, unit)
    longest = max(starts.values(), default=0.0)
    in_binary = unit == "B" and longest > 0
    axes.xaxis.set_major_locator(
        MultipleLocator(2.0 ** math.floor(math.log2(longest / 2))) if in_binary else MaxNLocator(4)
    )
    axes.grid(visible=False, axis="y")
    legend_below(axes)


class LaneSpan(NamedTuple):
    """A time in which a device computes something of a `kind`, in seconds from the beginning; `text` if it has room."""

    device: int
    kind: str
    begin: float
    seconds: float
    text: str = ""


def lanes(
    shown: Sequence[LaneSpan], axes: Axes, *, until: float, notes: Sequence[str], measured: float = 0.0, **look: Any
) -> None:
    """When each device computes and when it waits (grey): a lane per device, with a note at its end.

    A dotted line marks how long all of it takes as `measured`, if that is another time.
    """
    axes.barh(range(len(notes)), until, 0.5, color=style.colour("ideal"), alpha=0.25)
    end = max(until, measured)
    first = {one.kind: place for place, one in reversed([*enumerate(shown)])}
    for place, one in enumerate(shown):
        label = one.kind if first[one.kind] == place else None
        colour = style.colour(one.kind)
        axes.barh([one.device], [one.seconds], 0.5, left=one.begin, color=colour, linewidth=0.5, label=label)
        if one.text and SMALLEST * len(one.text) < one.seconds / end * LANE:
            middle = one.begin + one.seconds / 2
            axes.text(middle, one.device, one.text, ha="center", va="center", fontsize=SMALLEST, color=LIGHT)
    if measured:
        mark_at(axes, measured, f"measured {formatting.seconds(measured)}")
    for device, note in enumerate(notes):
        beside(axes, end, device, note)
    axes.set_yticks(range(len(notes)), [f"device {device}" for device in range(len(notes))])
    axes.set(ylim=(len(notes) - 0.5, -0.5 - 0.15 * len(notes) * bool(measured)), **look)
    axes.grid(visible=False, axis="y")
    number_axis(axes.xaxis, "s")
    axes.margins(x=0.2)
    legend_below(axes)


def mark_rows(axes: Axes, ends: Mapping[int, float]) -> None:
    """A black mark across some rows of bars, where something else than their length is."""
    axes.vlines(list(ends.values()), [row - 0.4 for row in ends], [row + 0.4 for row in ends], color=style.INK)


def beside(axes: Axes, x: float, y: float, text: str) -> None:
    """Right of a mark; spaces would be lost in an SVG."""
    axes.annotate(
        text, (x, y), (5, 0), textcoords="offset points", va="center", fontsize="small", annotation_clip=False
    )


def height_of(shown: Sequence[Point]) -> float:
    """The height in inches of a panel with these bars."""
    return max(style.HEIGHT, 0.9 + BAR * len({point.x for point in shown}) * len(set(_kinds(shown))))


def ratios(shown: Sequence[Point], axes: Axes) -> None:
    """Ratios to one, one per row, each with its interval and its change; a dashed line marks 1."""
    if not shown:
        nothing(axes)
        return
    for place, point in enumerate(shown):
        axes.plot([point.low, point.high], [place, place], color=style.PALETTE[0], linewidth=2)
        axes.plot([point.value], [place], "o", color=style.PALETTE[0], ms=5, gid=points.show(axes, point, "x"))
        beside(axes, point.high, place, formatting.change(point.value))
    axes.axvline(1, color=style.INK, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(shown)), [str(point.x) for point in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.margins(x=0.2)


def accuracies(result: Result, named: Mapping[str, Record], axes: Axes, *, title: str) -> None:
    """Test accuracy after each epoch, a line for each of these."""
    shown = [point for name, record in named.items() for point in points.epochs(result, record, series=name)]
    curves(shown, axes, unit="share", xlabel="epoch", ylabel="test accuracy", ylim=(0, 1.02), title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def limit(axes: Axes, value: float, label: str) -> None:
    """A dashed line across at what cannot be exceeded, with its name above it."""
    axes.axhline(value, color=style.INK, linewidth=0.9, linestyle="--")
    axes.annotate(label, (0.01, value), xycoords=axes.get_yaxis_transform(), va="bottom", fontsize="small")
    low, high = axes.get_ylim()
    axes.set_ylim(low, max(high, 1.12 * value))


def ideal(axes: Axes, xs: Sequence[float], values: Sequence[float], label: str = "ideal") -> None:
    """A dotted line through what would be ideal."""
    axes.plot(xs, values, ":", color=style.colour("ideal"), linewidth=1.4)
    name_line_end(axes, xs[-1], values[-1], label, style.colour("ideal"))


def mark_at(axes: Axes, value: float, label: str) -> None:
    """A dotted line from top to bottom, with its name beside its upper end."""
    axes.axvline(value, color=style.INK, linewidth=1.1, linestyle=":")
    place: dict[str, Any] = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
    axes.annotate(label, (value, 1), (4, 0), **place, va="top", fontsize="small")


def number_axis(axis: Axis, unit: str) -> None:
    """Ticks as readers want them: times in the unit that fits, shares in per cent, no powers of ten."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: formatting.on_tick(value, unit)))
    axis.set_minor_formatter(NullFormatter())
    low, high = sorted(axis.get_view_interval())
    if axis.get_scale() == "log" and math.floor(math.log10(high)) <= math.ceil(math.log10(low)):
        axis.set_major_locator(MaxNLocator(4))  # at most one power of ten is in view: one number tells nothing
        axis.set_minor_locator(NullLocator())


def ticks(axes: Axes, values: Sequence[float], most: int = 8, text: Callable[[float], str] = "{:g}".format) -> None:
    """Ticks at the values measured and nowhere else: at every second one, or fewer, if they are many."""
    some = list(values)[:: max(1, math.ceil(len(values) / most))]
    axes.set_xticks(some, list(map(text, some)))
    axes.set_xticks([], minor=True)


def byte_ticks(axes: Axes, values: Sequence[int]) -> None:
    """Ticks at four sizes at most, in KiB and MiB: more would touch one another."""
    ticks(axes, values, 4, formatting.count_bytes)


def nothing(axes: Axes) -> None:
    """Say so, where there is nothing to draw."""
    axes.text(0.5, 0.5, "nothing was measured", transform=axes.transAxes, ha="center", color=style.INK)


def legend_below(axes: Axes) -> None:
    """A legend without repeated entries, half an inch below the axes, so that their label fits between."""
    handles, labels = axes.get_legend_handles_labels()
    unique, figure = dict(zip(labels, handles, strict=True)), axes.get_figure()
    assert isinstance(figure, Figure)
    below = axes.transAxes + ScaledTranslation(0, -0.5, figure.dpi_scale_trans)
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, 0), "bbox_transform": below, "ncols": 2}
    axes.legend(unique.values(), unique.keys(), frameon=False, fontsize="small", **place)


def finish(figure: Figure, footer: Sequence[str] = ()) -> None:
    """Name the ends of lines, write the lines of `footer` below, and fix the layout: before saving."""
    for axes in figure.axes:
        _place_names(axes)
    if footer:
        lines = "\n".join(footer)
        figure.supxlabel(lines, fontsize="xx-small", x=0.01, ha="left", color=style.colour("ideal"))
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # or each format would compute the same layout again


def heat_map(
    rates: Mapping[Pair, float], axes: Axes, *, odd: Collection[Pair] = (), width: float, what: str, title: str
) -> None:
    """Links' rates in GB/s as numbers, if the axes' `width`, in points, leaves room for them; odd ones are outlined."""
    ends = sorted({end for pair in rates for end in pair})
    size = min(LARGEST, 0.45 * width / len(ends))
    top = max(rates.values())
    colours = colormaps["Blues"]
    for (a, b), rate in rates.items():
        x, y, share = ends.index(b), ends.index(a), 0.1 + 0.8 * rate / top
        edge = {"edgecolor": ODD, "linewidth": min(2.2, size / 4), "zorder": 3} if (a, b) in odd else {"linewidth": 0}
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colours(share), **edge))
        if size >= SMALLEST:
            text = f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}"
            ink = LIGHT if share > 0.55 else DARK
            axes.text(x, y, text, ha="center", va="center", fontsize=size, color=ink, zorder=4)
    every = range(0, len(ends), 1 if size >= SMALLEST else 4)
    for set_ticks in (axes.set_xticks, axes.set_yticks):
        set_ticks(list(every), [str(ends[place]) for place in every], fontsize="x-small")
    axes.grid(visible=False)
    last = len(ends) - 0.5
    axes.set(xlim=(-0.5, last), ylim=(last, -0.5), aspect="equal")
    axes.set(xlabel=f"to {what}", ylabel=f"from {what}", title=title)
