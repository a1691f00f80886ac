"""The pictures of a machine's health: a heat map of its links, a strip for each measurement, and its collectives."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from scalecard.analysis import formatting
from scalecard.analysis.health.rates import NOTABLE, OF_DEVICES, rates
from scalecard.analysis.limits import bus_bytes
from scalecard.figures import charts, points, style
from scalecard.figures.charts import ODD, Cell, Cells
from scalecard.records.record import Result

DRAWN = ("all_reduce", "all_gather", "all_to_all")  # collectives
OFFSET = 0.2  # between what was measured alone and all at once, in rows


def device_links(result: Result) -> tuple[int, Cells]:
    """From each device to each other one, one at a time, at the largest size; of several nodes, of the worst one."""
    found = _cells(result, "device link", ("source", "target"))
    return max(found.items(), key=lambda one: sum(cell.odd for cell in one[1].values()), default=(0, {}))


def node_links(result: Result) -> Cells:
    """Between nodes, the same in both directions."""
    (cells,) = _cells(result, "node pair", ("node", "other")).values() or ({},)
    return cells | {(b, a): cell for (a, b), cell in cells.items()}


def _cells(result: Result, part: str, ends: tuple[str, str]) -> dict[int, Cells]:
    """By the node on which it was measured."""
    found = dict[int, Cells]()
    own = [rate for rate in rates(result) if rate.record.case["part"] == part and not rate.record.case.get("at_once")]
    most = max((rate.record.integer("bytes") for rate in own), default=0)
    for rate in own:
        if rate.record.case["bytes"] == most:
            a, b = (rate.record.integer(end) for end in ends)
            found.setdefault(rate.node or 0, {})[a, b] = Cell(rate.value, rate.is_odd or rate.is_low)
    return found


@dataclass(frozen=True)
class Strip:
    """One measurement of every device, as percentages, alone and all at once."""

    label: str
    alone: list[tuple[str, float, bool]]
    at_once: list[tuple[str, float, bool]]


def strips(result: Result) -> list[Strip]:
    """Of each device its share of the median of its peers or, with one device, of the hardware's limit."""
    found = dict[str, Strip]()
    for rate in rates(result):
        label, share = rate.in_strip, rate.value / rate.normal if rate.normal else rate.share
        if rate.part in OF_DEVICES and share is not None:
            strip = found.setdefault(label, Strip(label, [], []))
            device = f"{rate.place[0].device}" if rate.node is None else f"{rate.node}:{rate.place[0].device}"
            point = (device, 100 * share, rate.is_odd)
            (strip.alone if rate.alone else strip.at_once).append(point)
    return list(found.values())


def draw_strips(found: Sequence[Strip], axes: Axes, *, alone: bool) -> None:
    """A point for every device; the odd ones have their number. `alone` says that there is only one device."""
    if not found:
        charts.nothing(axes)
        return
    for row, strip in enumerate(found):
        _row(strip.alone, row - OFFSET, "alone", axes)
        _row(strip.at_once, row + OFFSET, "all at once", axes)
    shares = [share for strip in found for _, share, _ in (*strip.alone, *strip.at_once)]
    # At least a tenth to either side, so that a healthy scatter looks small, and room for the odd ones' numbers.
    low, high = (0.0, 105.0) if alone else (min(85.0, 1.15 * min(shares) - 15), 105.0)
    axes.set(xlim=(low, max(high, 1.02 * max(shares))), ylim=(len(found) - 0.5, -0.5))
    axes.set_xlabel("% of the hardware's limit" if alone else "% of the median of its peers")
    axes.locator_params(axis="x", nbins=5)
    axes.set_yticks(range(len(found)), [strip.label for strip in found], fontsize="x-small")
    if not alone:
        axes.axvline(100 * NOTABLE, color=style.INK, linewidth=0.8, linestyle="--")
        charts.legend_below(axes)


def _row(points: Sequence[tuple[str, float, bool]], y: float, label: str, axes: Axes) -> None:
    """Filled points for what was measured alone, rings for what was measured all at once."""
    for odd in (False, True):
        own = [(x, device) for device, x, is_odd in points if is_odd == odd]
        if not own:
            continue
        colour = ODD if odd else style.PALETTE[0]
        face = colour if label == "alone" else "none"
        name = None if odd else label
        axes.plot([x for x, _ in own], [y] * len(own), "o", ms=4, color=colour, markerfacecolor=face, label=name)
        if odd:
            text = ", ".join(device for _, device in own)
            axes.text(min(x for x, _ in own), y, f"{text}  ", ha="right", va="center", fontsize=6.5)


def collectives(results: Sequence[Result], axes: Axes) -> None:
    """Bus bandwidth over the number of devices at the largest size, of three collectives; of several platforms one."""
    several = len({result.platform for result in results}) > 1
    shown = [
        points.rated(result, r, bus_bytes(r) / 1e9, series=each.replace("_", "-"), x=r.integer("devices"))
        for result in results
        for each in (DRAWN[:1] if several else DRAWN)
        for r in formatting.largest(result.select("time", part="collective", collective=each), "bytes")
    ]
    charts.curves(shown, axes, unit="GB/s")
    if shown:
        axes.set_xscale("log", base=2)
        charts.ticks(axes, sorted({float(point.x) for point in shown}))
        axes.set_ylim(bottom=0)
    axes.set(xlabel="devices", ylabel="bus bandwidth (GB/s)", title="collectives")
