"""Which strategy should train each workload here, on how many devices, and which defaults should change?

Samples or tokens per second over the number of devices, one panel per workload, with one device's batch shared by all.
Thick: the strategy that is recommended; the others are thin and grey. Dashed: the best one with as many samples on each
device as one has alone. Dotted: as many devices that each work as fast as one. Bars span the 95 % intervals.
"""

import math
from collections.abc import Sequence

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
PRIORITIES = (7, 28, 29)  # of what to use, of the batch, and of what to avoid


def plot(platforms: Sequence[Measured]) -> Figure:
    """The first platform's rates by devices, a panel per workload."""
    measured = platforms[0]
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
    for scaling, dash in (("strong", "-"), ("weak", "--")):
        several = [place for place in timed(found, scaling) if place.devices > 1]
        choice = choose(several, scaling)
        for name in dict.fromkeys(place.strategy for place in several):
            chosen = choice is not None and choice.best.strategy == name
            if chosen or scaling == "strong":
                label = f"{name}, {scaling}" if chosen else "the others, strong"
                colour = (style.INK if result.emulated else style.colour(name)) if chosen else OTHERS
                _line([p for p in several if p.strategy == name], axes, label, colour, dash, thick=chosen)
    able = timed(found, "strong")
    if not able:
        charts.nothing(axes)
        return
    _ideal(able, axes)
    axes.set(xlabel="devices", ylabel=f"{able[0].unit}/s", xscale="log", yscale="log")
    charts.ticks(axes, sorted({place.devices for place in able}))
    charts.plain_numbers(axes.yaxis)
    charts.legend(axes)


def _line(own: Sequence[Place], axes: Axes, label: str, colour: str, dash: str, *, thick: bool) -> None:
    """The rates of a strategy, over the fewest nodes of each number of devices, with their intervals."""
    by_devices: dict[int, Place] = {}
    for place in sorted(own, key=lambda place: -place.nodes):
        by_devices[place.devices] = place
    line = [by_devices[devices] for devices in sorted(by_devices)]
    bounds = [(p.units / i.high, p.units / i.low) if (i := p.step.interval) else (p.rate, p.rate) for p in line]
    axes.errorbar(
        [place.devices for place in line],
        [place.rate for place in line],
        [[max(0.0, p.rate - low) for p, (low, _) in zip(line, bounds, strict=True)],
         [max(0.0, high - p.rate) for p, (_, high) in zip(line, bounds, strict=True)]],
        fmt=style.marker(own[0].strategy) + dash,
        color=colour,
        linewidth=2.4 if thick else 0.9,
        markersize=7 if thick else 4,
        zorder=3 if thick else 2,
        label=label,
    )  # fmt: skip


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
    found = [finding for name in (workloads(result) if result else []) for finding in _of_workload(result, name)]
    found += [Finding(text=text, priority=30) for text in _of_defaults(measured)]
    if found:
        return found
    why = words.reason(result, "step_time") if result else ""
    text = f"Nothing to choose from: {why or 'strategies was not measured'}."
    return [Finding(text=text, headline="not compared", priority=90)]


def _of_workload(result: Result | None, workload: str) -> list[Finding]:
    if result is None:
        return []
    choice = choose(places(result, workload), "strong")
    headline = f"{workload}: {choice.best.where}" if choice else f"{workload}: fits nowhere"
    said = sentences.sentences(result, workload)
    return [
        Finding(text=text, headline=headline if number == 0 else "", priority=PRIORITIES[number])
        for number, text in enumerate(said)
    ]


def _of_defaults(measured: Measured) -> list[str]:
    return [*sentences.on_defaults(changes(measured)), *sentences.on_data_parallel(measured)]


def tables(measured: Measured) -> list[Table]:
    """What to use, everything it was chosen from, and the settings; of emulated devices all as a trial."""
    result, trial = measured.of("strategies"), measured.emulated
    made = [tabulated.defaults(changes(measured), trial=trial)]
    said = _of_defaults(measured)
    if result:
        of_strategies = (tabulated.summary, tabulated.everything, tabulated.by_batch)
        made = [*(table(result, trial=trial) for table in of_strategies), *made]
        said = [text for name in workloads(result) for text in sentences.sentences(result, name)] + said
    if trial:
        made.insert(0, tabulated.told(said))
    return [table for table in made if table.rows]
