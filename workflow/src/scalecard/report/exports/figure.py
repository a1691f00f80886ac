"""The figure beside the table of scaling: speed-up with one device's batch, and efficiency with as many on each."""

import textwrap
from collections.abc import Sequence

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalecard.records.statistics import Ratio
from scalecard.report import charts, style, words
from scalecard.report.advice.places import Place

DASHES = ("-", "--", "-.", ":")  # strategies of the same colour have different ones
BELOW = 150  # characters of a line of the note


def plot(rows: Sequence[Place], note: str) -> Figure:
    """Two panels per workload, a line per strategy with 95 % intervals, and the note below."""
    names = list(dict.fromkeys(row.workload for row in rows)) or [""]
    figure, grid = plt.subplots(len(names), 2, squeeze=False, figsize=(8.2, style.HEIGHT * len(names) + 1))
    strategies = list(dict.fromkeys(_label(row) for row in rows if row.devices > 1))
    for name, (left, right) in zip(names, grid, strict=True):
        own = [row for row in rows if row.workload == name]
        _panel(own, left, strategies, "strong")
        _panel(own, right, strategies, "weak")
        left.set(title=f"{name}: strong scaling", ylabel="speed-up")
        right.set(title=f"{name}: weak scaling", ylabel="efficiency", ylim=(0, None))
    _legend(figure, figure.axes)
    figure.supxlabel("\n".join(textwrap.wrap(note, BELOW)), fontsize="x-small", x=0.01, ha="left")
    sns.despine(figure)
    return figure


def _panel(own: Sequence[Place], axes: Axes, strategies: Sequence[str], scaling: str) -> None:
    """Strong scaling by its speed-up beside the ideal, weak scaling by its efficiency."""
    several = [row for row in own if row.devices > 1 and row.scaling == scaling and row.gain]
    if not several:
        charts.nothing(axes)
        axes.set(xticks=[], yticks=[])
        return
    devices = sorted({1, *(row.devices for row in several)})
    ideal = devices if scaling == "strong" else [1] * len(devices)
    axes.plot(devices, ideal, ":", color=style.colour("ideal"), label="ideal")
    for index, name in enumerate(strategies):
        line = sorted((row for row in several if _label(row) == name), key=lambda row: row.devices)
        shown = [row.gain if scaling == "strong" else row.efficiency for row in line]
        if line:
            _line([row.devices for row in line], [ratio for ratio in shown if ratio], axes, name, index)
    axes.set(xlabel="devices")
    axes.set_xticks(devices)


def _label(row: Place) -> str:
    return row.strategy + words.over_nodes(row.nodes if row.nodes > 1 else None)


def _line(devices: Sequence[int], ratios: Sequence[Ratio], axes: Axes, name: str, index: int) -> None:
    bounds = [(r.interval.low, r.interval.high) if r.interval else (r.value, r.value) for r in ratios]
    spread = [
        [max(0.0, ratio.value - low) for ratio, (low, _) in zip(ratios, bounds, strict=True)],
        [max(0.0, high - ratio.value) for ratio, (_, high) in zip(ratios, bounds, strict=True)],
    ]
    axes.errorbar(
        [1, *devices],
        [1.0, *(ratio.value for ratio in ratios)],
        [[0.0, *part] for part in spread],
        fmt=style.MARKERS[index % len(style.MARKERS)],
        linestyle=DASHES[index // len(style.PALETTE) % len(DASHES)],
        color=style.PALETTE[index % len(style.PALETTE)],
        markersize=4,
        linewidth=1.2,
        label=name,
    )


def _legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """One for all panels, above them."""
    entries = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        entries.update(zip(labels, handles, strict=True))
    if entries:
        place = {"loc": "outside upper left", "ncols": 4, "frameon": False, "fontsize": "small"}
        figure.legend(list(entries.values()), list(entries), **place)
