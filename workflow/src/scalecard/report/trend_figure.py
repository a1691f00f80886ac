"""The figure of a trend: every number over the nights, one below the other, so that it can be read on a phone."""

import textwrap
from datetime import datetime
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.dates import ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from scalecard.analysis import formatting
from scalecard.analysis.compare import DRIVER
from scalecard.figures import style
from scalecard.report.trend import Night, Series, Trend

WIDTH, HEIGHT = 3.8, 1.35  # inches: of a panel. A phone shows it at about its own size, with text of 11 pixels.
LEAST_SPAN = 0.04  # of the median: less would make noise look like change
MOST_BARS = 30  # nights whose intervals are bars; those of more are a band
LINE = 52  # characters of a title


def plot(trend: Trend) -> Figure:
    """Value and interval over time, with the changes marked, of each number with two nights or more."""
    shown = [series for series in trend.series if len(series.points) > 1]
    figure, panels = plt.subplots(
        max(1, len(shown)),
        1,
        sharex=True,
        squeeze=False,
        layout="constrained",
        figsize=(WIDTH, 0.5 + HEIGHT * max(1, len(shown))),
    )
    for series, axes in zip(shown, panels[:, 0], strict=False):
        _panel(series, axes)
        for night in trend.nights:
            if night.changes:
                line = "--" if _driver(night) else ":"
                axes.axvline(_when(night), color=style.INK, linewidth=0.8, linestyle=line)
    last = panels[-1, 0]
    if shown:
        for night in trend.nights:  # the new driver beside its line, in the first panel alone
            if driver := _driver(night):
                at: dict[str, Any] = {"xy": (_when(night), 1), "xycoords": ("data", "axes fraction")}
                panels[0, 0].annotate(f" {driver}", va="top", fontsize="x-small", **at)
        locator = MaxNLocator(4, integer=True)  # whole days; the locators of dates give narrow figures too many or none
        last.xaxis.set_major_locator(locator)
        last.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    else:
        last.text(0.5, 0.5, "fewer than two nights", transform=last.transAxes, ha="center", color=style.INK)
    return figure


def _panel(series: Series, axes: Axes) -> None:
    times = [_when(night) for night, _ in series.points]
    # The unit that fits the last value, and how many of the series' own it has.
    unit, size = formatting.of_seconds(series.points[-1][1].value) if series.unit == "s" else (series.unit, 1.0)
    values = [own.value / size for _, own in series.points]
    limits = [own.interval or (own.value, own.value) for _, own in series.points]
    low, high = ([limit / size for limit in side] for side in zip(*limits, strict=True))
    colour = style.colour("nights")
    axes.plot(times, values, color=colour, marker="o", markersize=3 if len(times) <= MOST_BARS else 2, linewidth=1)
    if len(times) <= MOST_BARS:
        axes.vlines(times, low, high, color=colour, linewidth=1)
    else:
        axes.fill_between(times, low, high, color=colour, alpha=0.25, linewidth=0)
    first = [series.alike[point.at] for point in series.change_points]
    marks = [place for place, (night, _) in enumerate(series.points) if night in first]
    axes.plot([times[n] for n in marks], [values[n] for n in marks], "v", color=style.PALETTE[1], markersize=6)
    if series.verdict == "slower":
        axes.plot(times[-1:], values[-1:], "X", color=style.PALETTE[1], markersize=8)
    title = f"{formatting.spaced(series.experiment)}: {series.label} ({unit})"
    axes.set_title("\n".join(textwrap.wrap(title, LINE)), fontsize="small")
    axes.yaxis.set_major_locator(MaxNLocator(4))
    low_end, high_end = axes.get_ylim()
    least, middle = LEAST_SPAN * sorted(values)[len(values) // 2] / 2, (low_end + high_end) / 2
    axes.set_ylim(min(low_end, middle - least), max(high_end, middle + least))


def _driver(night: Night) -> str:
    """'driver 580.2' if it is another one than on the night before."""
    change = next((each for each in night.changes if each.fact == DRIVER), None)
    return f"driver {formatting.setting(DRIVER.key, change.new)}" if change else ""


def _when(night: Night) -> float:
    return float(date2num(datetime.fromisoformat(night.finished)))  # type: ignore[no-untyped-call]
