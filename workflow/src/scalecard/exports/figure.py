"""The figure beside the table of scaling: speed-up with one device's batch, and efficiency with as many on each."""

import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalecard.analysis import ratio_text
from scalecard.analysis.advice.strategy_runs import Place
from scalecard.figures import charts, style
from scalecard.records.statistics import Interval, Ratio

DASHES = ("-", "--", "-.", ":")  # strategies of the same colour have different ones
BELOW = 150  # characters of a line of the note


def plot(rows: Sequence[Place], note: str) -> Figure:
    """Two panels per workload, a line per strategy with 95 % intervals, and the note below."""
    names = list(dict.fromkeys(row.workload for row in rows)) or [""]
    figure, grid = plt.subplots(len(names), 2, squeeze=False, figsize=(8.2, style.HEIGHT * len(names) + 1))
    strategies = list(dict.fromkeys(_label(row) for row in rows if row.devices > 1))
    for name, panels in zip(names, grid, strict=True):
        for axes, scaling in zip(panels, ("strong", "weak"), strict=True):
            own = [row for row in rows if row.workload == name and row.scaling == scaling and row.devices > 1]
            _panel(own, axes, strategies)
            axes.set(title=f"{name}: {scaling} scaling")
    _legend(figure, figure.axes)
    figure.supxlabel("\n".join(textwrap.wrap(note, BELOW)), fontsize="x-small", x=0.01, ha="left")
    sns.despine(figure)
    return figure


def _panel(own: Sequence[Place], axes: Axes, strategies: Sequence[str]) -> None:
    """Strong scaling by its speed-up beside the ideal, weak scaling by its efficiency.

    Both by the rate if the workload does not fit on one device, or that was not timed.
    """
    if not own:
        charts.nothing(axes)
        axes.set(xticks=[], yticks=[])
        return
    compared, strong = all(row.gain for row in own), own[0].scaling == "strong"
    devices = sorted({*([1] if compared else []), *(row.devices for row in own)})
    if compared:
        ideal = devices if strong else [1] * len(devices)
        axes.plot(devices, ideal, ":", color=style.colour("ideal"), label="ideal")
    for index, name in enumerate(strategies):
        line = sorted((row for row in own if _label(row) == name), key=lambda row: row.devices)
        start = [(1, Ratio(1.0, None))] if compared else []
        points = [*start, *((row.devices, _value(row, compared)) for row in line)]
        if line:
            _line(points, axes, name, index)
    what = ("speed-up" if strong else "efficiency") if compared else f"{own[0].unit}/s"
    axes.set(xlabel="devices", ylabel=what, xticks=devices)
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])


def _value(row: Place, compared: bool) -> Ratio:
    found = row.gain if row.scaling == "strong" else row.efficiency
    if compared and found:
        return found
    bounds = row.step.interval and Interval(row.units / row.step.interval.high, row.units / row.step.interval.low)
    return Ratio(row.rate, bounds)


def _label(row: Place) -> str:
    return row.strategy + ratio_text.over_nodes(row.nodes if row.nodes > 1 else None)


def _line(points: Sequence[tuple[int, Ratio]], axes: Axes, name: str, index: int) -> None:
    ratios = [ratio for _, ratio in points]
    bounds = [(r.interval.low, r.interval.high) if r.interval else (r.value, r.value) for r in ratios]
    spread = [
        [max(0.0, ratio.value - low) for ratio, (low, _) in zip(ratios, bounds, strict=True)],
        [max(0.0, high - ratio.value) for ratio, (_, high) in zip(ratios, bounds, strict=True)],
    ]
    axes.errorbar(
        [devices for devices, _ in points],
        [ratio.value for ratio in ratios],
        spread,
        fmt=style.MARKERS[index % len(style.MARKERS)],
        linestyle=DASHES[index // len(style.PALETTE) % len(DASHES)],
        color=style.PALETTE[index % len(style.PALETTE)],
        markersize=4,
        linewidth=1.2,
        label=name,
    )


def _legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """One for all panels, above them."""
    entries: dict[Any, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        entries.update(zip(labels, handles, strict=True))
    if entries:
        place: dict[str, Any] = {"loc": "outside upper left", "ncols": 4, "frameon": False, "fontsize": "small"}
        figure.legend(list(entries.values()), list(entries), **place)
