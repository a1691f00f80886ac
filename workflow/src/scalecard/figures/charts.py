"""The kinds of chart that the sections draw: every value with its interval, named where it is drawn.

Lines are named at their ends and bars carry their values, so that few figures need a legend. points.py remembers what
is shown; layout.py places names, values and legends, once all limits are known. `look` is what `Axes.set` takes.
"""

import math
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator, NullFormatter, NullLocator

from scalecard.analysis import formatting
from scalecard.figures import layout, points, style
from scalecard.figures.points import Point
from scalecard.records.record import Record, Result

BAR, ONE_LINE = 0.19, 0.15  # inches of height for each bar, and for a line of its name
NAME = 24  # letters of a bar's name in one line
FAR = 10  # times the smallest value: beyond, it is not seen on an axis that begins at zero
AROUND, LEGEND = 0.9, 0.4  # inches of a panel around its bars, and for a legend
WHISKER: dict[str, Any] = {"color": style.INK, "linewidth": 1.1}
ODD = style.PALETTE[1]
SMALLEST, LARGEST = 7.0, 9.0  # points, of a number in a cell
DARK, LIGHT = "#111418", "#ffffff"  # numbers stand on the cells' own colours, in light and dark pages
Pair = tuple[int, int]  # of devices or nodes: from the first to the second


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
    looks = style.distinct(kinds)
    for order, (kind, (colour, marker, dash)) in enumerate(looks.items()):
        own = sorted((point for point, own_kind in zip(shown, kinds, strict=True) if own_kind == kind), key=_number)
        xs, above = list(map(_number, own)), 3 - order / len(looks)  # the first line lies above the others
        axes.plot(xs, [point.value for point in own], color=colour, linestyle=dash, linewidth=1.7, zorder=above)
        low, high = [point.low for point in own], [point.high for point in own]
        axes.fill_between(xs, low, high, color=colour, alpha=0.2, linewidth=0)
        for point, x in zip(own, xs, strict=True):
            mark = points.show(axes, point, unit, x_unit)
            axes.plot([x], [point.value], marker, color=colour, ms=5, gid=mark, zorder=above)
        if named:
            layout.name_line_end(axes, xs[-1], own[-1].value, kind, colour)
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

    Bars of the same `x` lie beside one another: one for each series, or each platform if there are several, which a
    legend names. The names of bars say what a label of their axis would.
    """
    rows, kinds, named = list(dict.fromkeys(point.x for point in shown)), _kinds(shown), set[str]()
    looks = style.distinct(kinds)
    every = list(looks)
    for point, kind in zip(shown, kinds, strict=True):
        height = 0.76 / len(every)
        place = rows.index(point.x) + height * (every.index(kind) - (len(every) - 1) / 2)
        mark, label = points.show(axes, point, unit), None if kind in named else kind
        axes.barh([place], [point.value], height, color=looks[kind].colour, label=label, gid=mark)
        if point.interval:
            axes.plot([point.low, point.high], [place, place], **WHISKER)
        beside(axes, point.high, place, formatting.of(point.value, unit))
        named.add(kind)
    if shown:
        texts = [textwrap.wrap(str(row), NAME) for row in rows]
        axes.set_yticks(range(len(rows)), ["\n".join(text) for text in texts])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        number_axis(axes.xaxis, unit)
        axes.xaxis.set_major_locator(MaxNLocator(3))
        lines = max(map(len, texts))
        layout.panel_of(axes).legend = len(every) > 1
        layout.panel_of(axes).height = (
            AROUND + LEGEND * (len(every) > 1) + len(rows) * max(BAR * max(len(every), 1.3), ONE_LINE * (lines + 0.4))
        )
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
    layout.panel_of(axes).height = AROUND + LEGEND + 1.3 * BAR * len(rows)
    number_axis(axes.xaxis, unit)
    longest = max(starts.values(), default=0.0)
    in_binary = unit == "B" and longest > 0
    axes.xaxis.set_major_locator(
        MultipleLocator(2.0 ** math.floor(math.log2(longest / 2))) if in_binary else MaxNLocator(4)
    )
    axes.grid(visible=False, axis="y")
    layout.panel_of(axes).legend = True


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
        middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SMALLEST, "color": LIGHT}
        if one.text:
            inside = axes.text(one.begin + one.seconds / 2, one.device, one.text, **middle)
            layout.panel_of(axes).inside.append((inside, one.seconds))
    if measured:
        mark_at(axes, measured, f"measured {formatting.seconds(measured)}")
    for device, note in enumerate(notes):
        beside(axes, end, device, note)
    axes.set_yticks(range(len(notes)), [f"device {device}" for device in range(len(notes))])
    layout.panel_of(axes).height = AROUND + LEGEND + 1.3 * BAR * len(notes)
    axes.set(ylim=(len(notes) - 0.5, -0.5), **look)
    axes.grid(visible=False, axis="y")
    number_axis(axes.xaxis, "s")
    layout.panel_of(axes).legend = True


def mark_rows(axes: Axes, ends: Mapping[int, float]) -> None:
    """A black mark across some rows of bars, where something else than their length is."""
    axes.vlines(list(ends.values()), [row - 0.4 for row in ends], [row + 0.4 for row in ends], color=style.INK)


def beside(axes: Axes, x: float, y: float, text: str) -> None:
    """Right of a mark; spaces would be lost in an SVG."""
    place: dict[str, Any] = {"textcoords": "offset points", "va": "center", "annotation_clip": False}
    layout.panel_of(axes).values.append(axes.annotate(text, (x, y), (style.BESIDE, 0), fontsize="small", **place))


def ratios(shown: Sequence[Point], axes: Axes) -> None:
    """Changes, one per row, each with its interval; a dashed line marks none. The points are ratios to one."""
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
    layout.panel_of(axes).height = AROUND + 1.3 * BAR * len(shown)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: formatting.change(value)))
    layout.panel_of(axes).marks.append(1)


def accuracies(result: Result, named: Mapping[str, Record], axes: Axes, *, title: str) -> None:
    """Test accuracy after each epoch, a line for each of these."""
    shown = [point for name, record in named.items() for point in points.epochs(result, record, series=name)]
    curves(shown, axes, unit="share", xlabel="epoch", ylabel="test accuracy", ylim=(0, 1.02), title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def limit(axes: Axes, value: float, label: str) -> None:
    """A dashed line across at what cannot be exceeded, with its name beside it."""
    axes.axhline(value, color=style.INK, linewidth=0.9, linestyle="--")
    layout.name_line_end(axes, None, value, label, style.INK)
    low, high = axes.get_ylim()
    axes.set_ylim(low, max(high, 1.12 * value))


def ideal(axes: Axes, xs: Sequence[float], values: Sequence[float], label: str = "ideal") -> None:
    """A dotted line through what would be ideal."""
    axes.plot(xs, values, ":", color=style.colour("ideal"), linewidth=1.4)
    layout.name_line_end(axes, xs[-1], values[-1], label, style.colour("ideal"))


def mark_at(axes: Axes, value: float, label: str) -> None:
    """A dotted line from top to bottom, with its name above it."""
    axes.axvline(value, color=style.INK, linewidth=1.1, linestyle=":")
    place: dict[str, Any] = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
    axes.annotate(label, (value, 1), (0, 2), **place, ha="center", va="bottom", fontsize="small")
    layout.panel_of(axes).marks.append(value)


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


def from_zero_or_log(axes: Axes, values: Sequence[float], unit: str) -> None:
    """The axis of values begins at zero; it is logarithmic where the smallest would not be seen beside the largest."""
    if values and max(values) > FAR * min(values) > 0:
        axes.set_yscale("log")
        axes.set_ylim(min(values) / 1.5, max(axes.get_ylim()[1], 1.2 * max(values)))
        number_axis(axes.yaxis, unit)
    else:
        axes.set_ylim(bottom=0)


def nothing(axes: Axes) -> None:
    """Say so, where there is nothing to draw."""
    axes.text(0.5, 0.5, "nothing was measured", transform=axes.transAxes, ha="center", color=style.INK)


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
        set_ticks(list(every), [str(ends[place]) for place in every], fontsize=SMALLEST)
    axes.grid(visible=False)
    last = len(ends) - 0.5
    axes.set(xlim=(-0.5, last), ylim=(last, -0.5), aspect="equal")
    layout.panel_of(axes).height = style.WIDTH
    axes.set(xlabel=f"to {what}", ylabel=f"from {what}", title=title)
