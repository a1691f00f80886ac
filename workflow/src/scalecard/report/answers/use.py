"""Which strategy should train each workload here, on how many devices, and which defaults should change?

Samples or tokens per second over the number of devices, one panel per workload, with one device's batch shared by all.
Thick: the fastest strategy, with its 95 % intervals; the others are grey, and named at their last point. Dashed: the
fastest one with as many samples on each device as one has alone. Dotted: as many devices that each work as fast as one.
"""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalecard.records.record import Result
from scalecard.report import charts, style, words
from scalecard.report.advice import sentences, tabulated
from scalecard.report.advice.choice import choose
from scalecard.report.advice.defaults import changes
from scalecard.report.advice.places import Place, places, timed, workloads
from scalecard.report.answers import Measured
from scalecard.report.sections import Finding
from scalecard.report.strategy_table import Table

COLUMNS = 2
OTHERS = style.PALETTE[7]
THIN: dict[str, Any] = {"linewidth": 0.9, "markersize": 4}
GAP = 0.062  # of the height of a panel, between two names
PRIORITIES = {sentences.USE: 7, sentences.BATCH: 28, sentences.AVOID: 29}


def plot(measured: Measured) -> Figure:
    """Rates by devices, a panel per workload."""
    result = measured.of("strategies")
    names = workloads(result) if result else []
    rows = max(1, math.ceil(len(names) / COLUMNS))
    columns = min(COLUMNS, max(1, len(names)))
    figure, grid = plt.subplots(rows, columns, squeeze=False, figsize=(8.2, 1.1 * style.HEIGHT * rows))
    for axes in grid.flat[len(names) :]:
        axes.set_visible(bool(not names))
        charts.nothing(axes)
    for name, axes in zip(names, grid.flat, strict=False):
        if result:
            _draw(result, name, axes)
        axes.set(title=f"{name}, a trial of the method" if measured.emulated else name)
    sns.despine(figure)
    return figure


def _draw(result: Result, workload: str, axes: Axes) -> None:
    """The recommended strategy's colour is ink where nothing is recommended, because devices are emulated."""
    found = places(result, workload)
    able = timed(found, "strong")
    if not able:
        charts.nothing(axes)
        return
    for scaling, dash in (("strong", "-"), ("weak", "--")):
        several = [place for place in timed(found, scaling) if place.devices > 1]
        choice = choose(several, scaling)
        for name in dict.fromkeys(place.strategy for place in several):
            line = _over_devices([place for place in several if place.strategy == name])
            if choice and choice.best.strategy == name:
                _line(line, axes, f"{name}, {scaling}", style.INK if result.emulated else style.colour(name), dash)
            elif scaling == "strong":
                rates = [place.rate for place in line]
                axes.plot([place.devices for place in line], rates, style.marker(name) + "-", color=OTHERS, **THIN)
    _ideal(able, axes)
    axes.set(xlabel="devices", ylabel=f"{able[0].unit}/s", xscale="log", yscale="log")
    charts.ticks(axes, sorted({place.devices for place in able}))
    charts.plain_numbers(axes.yaxis)
    charts.legend(axes)
    _name_the_ends(able, axes)


def _over_devices(own: Sequence[Place]) -> list[Place]:
    """A strategy's places by devices, each over the fewest nodes."""
    by_devices = {place.devices: place for place in sorted(own, key=lambda place: -place.nodes)}
    return [by_devices[devices] for devices in sorted(by_devices)]


def _line(line: Sequence[Place], axes: Axes, label: str, colour: str, dash: str) -> None:
    """The rates of the recommended strategy, with their intervals."""
    bounds = [(p.units / i.high, p.units / i.low) if (i := p.step.interval) else (p.rate, p.rate) for p in line]
    below = [max(0.0, place.rate - low) for place, (low, _) in zip(line, bounds, strict=True)]
    above = [max(0.0, high - place.rate) for place, (_, high) in zip(line, bounds, strict=True)]
    devices, rates = [place.devices for place in line], [place.rate for place in line]
    mark = style.marker(line[0].strategy) + dash
    axes.errorbar(devices, rates, [below, above], fmt=mark, color=colour, linewidth=2.4, label=label, zorder=3)


def _name_the_ends(able: Sequence[Place], axes: Axes) -> None:
    """The strategies by name, right of their last points, one below the other where points are close."""
    axes.get_figure().draw_without_rendering()  # type: ignore[union-attr]  # so that the axes have their limits
    names = dict.fromkeys(place.strategy for place in able if place.devices > 1)
    ends = [_over_devices([place for place in able if place.strategy == name])[-1] for name in names]
    to_share = axes.transData + axes.transAxes.inverted()
    ends.sort(key=lambda place: -place.rate)
    points = [(place.devices, place.rate) for place in ends]
    heights = _apart([to_share.transform(point)[1] for point in points])
    line = {"arrowstyle": "-", "color": OTHERS, "linewidth": 0.4, "relpos": (0, 0.5), "shrinkA": 0}
    for place, point, height in zip(ends, points, heights, strict=True):
        axes.annotate(
            place.strategy,
            point,
            (1.05, height),
            textcoords="axes fraction",
            arrowprops=line,
            fontsize="x-small",
            va="center",
            color=style.INK,
        )


def _apart(heights: Sequence[float]) -> list[float]:
    """Descending heights, moved apart to where texts do not overlap: down from the first, and up from the axis."""
    moved: list[float] = []
    for height in heights:
        moved.append(min(height, moved[-1] - GAP) if moved else height)
    for index in reversed(range(len(moved))):
        floor = moved[index + 1] + GAP if index + 1 < len(moved) else 0.0
        moved[index] = max(moved[index], floor)
    return moved


def _ideal(able: Sequence[Place], axes: Axes) -> None:
    alone = next((place for place in able if place.devices == 1), None)
    if alone:
        most = max(place.devices for place in able)
        colour = style.colour("ideal")
        axes.plot([1, most], [alone.rate, most * alone.rate], ":", color=colour, label="ideal")
        axes.plot([1], [alone.rate], style.marker("single device"), color=colour, label="one device")


def findings(measured: Measured) -> list[Finding]:
    """The advice, three sentences per workload at most; of emulated devices none."""
    result = measured.of("strategies")
    if measured.emulated:
        text = "No advice is given: CPU workers stand in for devices. The tables below, in grey, try the method out."
        return [Finding(text=text, headline="no advice: emulated", priority=95)]
    found = [finding for name in workloads(result) for finding in _of_workload(result, name)] if result else []
    found += [Finding(text=text, priority=30) for text in _of_defaults(measured)]
    if found:
        return found
    why = words.reason(result, "step_time") if result else ""
    text = f"Nothing to choose from: {why or 'strategies was not measured'}."
    return [Finding(text=text, headline="not compared", priority=90)]


def _of_workload(result: Result, workload: str) -> list[Finding]:
    return [
        Finding(text=one.text, headline=one.gist and f"{workload}: {one.gist}", priority=PRIORITIES[one.about])
        for one in sentences.sentences(result, workload)
    ]


def _of_defaults(measured: Measured) -> list[str]:
    return [*sentences.on_defaults(changes(measured)), *sentences.on_data_parallel(measured)]


def tables(measured: Measured) -> list[Table]:
    """What to use, everything it was chosen from, and the settings; of emulated devices all as a trial."""
    result, trial = measured.of("strategies"), measured.emulated
    made = [tabulated.defaults(changes(measured), trial=trial)]
    if result:
        of_strategies = (tabulated.summary, tabulated.everything, tabulated.by_batch)
        made = [*(table(result, trial=trial) for table in of_strategies), *made]
    if trial:
        found = [one for name in workloads(result) for one in sentences.sentences(result, name)] if result else []
        made.insert(0, tabulated.told([*(one.text for one in found), *_of_defaults(measured)]))
    return [table for table in made if table.rows]
