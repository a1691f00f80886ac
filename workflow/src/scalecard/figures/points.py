"""What figures show, value by value: drawn by charts.py, said when a reader points at it, and written as CSV."""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalecard.analysis import formatting, platforms
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Interval, Ratio

MARK = "point-"  # and a number: the ids of marks in an SVG
X = float | str  # a place on an axis of numbers, or the name of a bar


@dataclass(frozen=True, kw_only=True)
class Point:
    """A value of a `series` at `x` with its 95 % interval, if there are samples enough, and their number."""

    series: str
    x: X
    value: float
    interval: Interval | None
    samples: int | None  # None of what was computed from many records
    platform: str

    @property
    def low(self) -> float:
        return self.interval.low if self.interval else self.value

    @property
    def high(self) -> float:
        return self.interval.high if self.interval else self.value


def compared(result: Result, record: Record, ratio: Ratio, *, series: str, x: X) -> Point:
    """A ratio of the record to another one, or what else was computed from it."""
    platform, samples = platforms.platform_label(result), record.num_samples
    return Point(series=series, x=x, value=ratio.value, interval=ratio.interval, samples=samples, platform=platform)


def timed(result: Result, record: Record, *, series: str, x: X) -> Point:
    """The record's median, in its own unit."""
    return compared(result, record, Ratio(record.median, record.interval), series=series, x=x)


def rated(result: Result, record: Record, amount: float, *, series: str, x: X) -> Point:
    """`amount` per time."""
    bounds = record.interval and Interval(amount / record.interval.high, amount / record.interval.low)
    return compared(result, record, Ratio(amount / record.median, bounds), series=series, x=x)


def epochs(result: Result, record: Record, *, series: str) -> list[Point]:
    """A value after each epoch, which has no interval: the median of the processes'."""
    runs, platform = zip(*record.samples, strict=False), platforms.platform_label(result)
    return [
        Point(series=series, x=number, value=median(run), interval=None, samples=len(run), platform=platform)
        for number, run in enumerate(runs, 1)
    ]


@dataclass(frozen=True)
class Shown:
    """A point as it was drawn: in which panel, in which unit, and over what."""

    axes: Axes
    point: Point
    unit: str
    x_unit: str = ""  # 'B' of sizes

    @property
    def text(self) -> str:
        """'ring, 16 MiB: 101 GB/s (100 GB/s to 102 GB/s), n = 30, h100x8-3fa9c1'."""
        p = self.point
        if isinstance(p.x, str):
            place = p.x
        else:
            place = formatting.count_bytes(p.x) if self.x_unit else f"{self.axes.get_xlabel()} {p.x:g}"
        names = ", ".join(dict.fromkeys(filter(None, (p.series, place))))
        bounds = f" ({formatting.of(p.low, self.unit)} to {formatting.of(p.high, self.unit)})" if p.interval else ""
        count = f", n = {p.samples}" if p.samples else ""
        return f"{names}: {formatting.of(p.value, self.unit)}{bounds}{count}, {p.platform}"


_shown: "weakref.WeakKeyDictionary[Figure, list[Shown]]" = weakref.WeakKeyDictionary()


def show(axes: Axes, point: Point, unit: str, x_unit: str = "") -> str:
    """Remember that the axes show this point; returns the id of its mark in the figure's SVG."""
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    known = _shown.setdefault(figure, [])
    known.append(Shown(axes, point, unit, x_unit))
    return f"{MARK}{len(known) - 1}"


def of(figure: Figure) -> Sequence[Shown]:
    """What a figure shows, in the order in which it was drawn."""
    return _shown.get(figure, [])


def rows(figure: Figure) -> list[dict[str, object]]:
    """A row for each point that the figure shows, in the units of the records."""
    return [
        {
            "panel": " ".join(shown.axes.get_title(loc="left").split()),  # long titles have two lines
            "series": p.series,
            "platform": p.platform,
            "x": int(p.x) if isinstance(p.x, float) and p.x.is_integer() else p.x,
            "x_axis": shown.axes.get_xlabel() if isinstance(p.x, int | float) else shown.axes.get_ylabel(),
            "value": p.value,
            "low": p.interval and p.interval.low,
            "high": p.interval and p.interval.high,
            "unit": shown.unit,
            "samples": p.samples,
        }
        for shown in of(figure)
        for p in [shown.point]
    ]
