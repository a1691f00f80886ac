"""Which strategy should train each workload here, on how many devices, and which defaults should change?

Samples or tokens per second over the number of devices, one panel per workload, with one device's batch shared by all.
Thick: the fastest strategy, with its 95 % intervals; the next two are grey. Dashed: the fastest one with as many
samples on each device as one has alone. Dotted: as many devices that each work as fast as one.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalecard.analysis import formatting
from scalecard.analysis.default_settings import changes
from scalecard.analysis.platforms import PlatformResults
from scalecard.analysis.strategy_choice import Place, choose, places, timed, workloads
from scalecard.figures import charts, points, style
from scalecard.records.record import Result
from scalecard.records.strategies import SINGLE
from scalecard.report import advice_table, advice_text
from scalecard.report.sections import Finding, Topic
from scalecard.report.table import Table

OTHERS = style.PALETTE[7]
MOST = 3  # strategies that are drawn of those with one device's batch
THIN: dict[str, Any] = {"linewidth": 0.9, "markersize": 4}
TOPICS = {advice_text.USE: Topic.ADVICE, advice_text.BATCH: Topic.LARGER_BATCH, advice_text.AVOID: Topic.TO_AVOID}


def plot(measured: PlatformResults) -> Figure:
    """Rates by devices, a panel per workload."""
    result = measured.of("strategies")
    return rates([place for name in workloads(result) for place in places(result, name)] if result else [], result)


def rates(found: Sequence[Place], result: Result | None) -> Figure:
    """The rates of these runs by devices, a panel per workload; they are of the result's platform."""
    names = list(dict.fromkeys(place.workload for place in found))
    figure, panels = charts.panels(len(names), height=1.1 * style.HEIGHT)
    if not result or not names:
        charts.nothing(panels[0])
        return figure
    for name, axes in zip(names, panels, strict=True):
        _draw(result, [place for place in found if place.workload == name], axes)
        axes.set(title=f"{name}, a trial of the method" if result.emulated else name)
    return figure


def _draw(result: Result, found: Sequence[Place], axes: Axes) -> None:
    """The recommended strategy's colour is ink where nothing is recommended, because devices are emulated."""
    able = timed(found, "strong")
    if not able:
        charts.nothing(axes)
        return
    for scaling, dash in (("strong", "-"), ("weak", "--")):
        several = [place for place in timed(found, scaling) if place.devices > 1]
        choice = choose(several, scaling)
        others = _next(several)
        for name in dict.fromkeys(place.strategy for place in several):
            line = _over_devices([place for place in several if place.strategy == name])
            if choice and choice.best.strategy == name:
                text = name if scaling == "strong" else f"{name}, weak"
                _line(result, line, axes, text, style.INK if result.emulated else style.colour(name), dash)
            elif scaling == "strong" and name in others:
                ys = [place.rate for place in line]
                axes.plot([place.devices for place in line], ys, style.marker(name) + "-", color=OTHERS, **THIN)
                charts.name_line_end(axes, line[-1].devices, line[-1].rate, name, OTHERS)
    _ideal(able, axes)
    axes.set(xlabel="devices", ylabel=f"{able[0].unit}/s", xscale="log", yscale="log")
    charts.ticks(axes, sorted({place.devices for place in able}))
    charts.number_axis(axes.yaxis, "")


def _next(several: Sequence[Place]) -> list[str]:
    """The fastest strategies on the most devices: more lines would be a tangle, and the tables have them all."""
    most = max((place.devices for place in several), default=0)
    return [place.strategy for place in sorted(several, key=lambda p: (p.devices != most, -p.rate))][:MOST]


def _over_devices(own: Sequence[Place]) -> list[Place]:
    """A strategy's places by devices, each over the fewest nodes."""
    by_devices = {place.devices: place for place in sorted(own, key=lambda place: -place.nodes)}
    return [by_devices[devices] for devices in sorted(by_devices)]


def _line(result: Result, line: Sequence[Place], axes: Axes, label: str, colour: str, dash: str) -> None:
    """The rates of the recommended strategy, with their intervals."""
    shown = [points.rated(result, p.step, float(p.units), series=label, x=p.devices) for p in line]
    axes.plot([p.devices for p in line], [p.value for p in shown], dash, color=colour, linewidth=2.4, zorder=3)
    for point, place in zip(shown, line, strict=True):
        gid, mark = points.show(axes, point, f"{place.unit}/s"), style.marker(place.strategy)
        axes.plot([place.devices], [point.value], mark, color=colour, ms=6, gid=gid, zorder=3)
        axes.vlines([place.devices], [point.low], [point.high], color=colour, linewidth=1.2)
    charts.name_line_end(axes, line[-1].devices, line[-1].rate, label, colour)


def _ideal(able: Sequence[Place], axes: Axes) -> None:
    alone = next((place for place in able if place.devices == 1), None)
    if alone:
        most = max(place.devices for place in able)
        charts.ideal(axes, [1, most], [alone.rate, most * alone.rate])
        axes.plot([1], [alone.rate], style.marker(SINGLE.name), color=style.colour("ideal"))


def findings(measured: PlatformResults) -> list[Finding]:
    """The advice, three sentences per workload at most; of emulated devices none."""
    result = measured.of("strategies")
    if measured.emulated:
        text = "No advice is given: CPU workers stand in for devices. The tables below, in grey, try the method out."
        return [Finding(text=text, headline="no advice: emulated", topic=Topic.EMULATED)]
    found = [
        Finding(text=one.text, headline=one.gist and f"{name}: {one.gist}", topic=TOPICS[one.about])
        for name, one in _sentences(result)
    ]
    found += [Finding(text=text, topic=Topic.DEFAULTS) for text in _of_defaults(measured)]
    if found:
        return found
    why = formatting.reason(result, "step_time") if result else ""
    text = f"Nothing to choose from: {why or 'strategies was not measured'}."
    return [Finding(text=text, headline="not compared", topic=Topic.NOT_MEASURED)]


def _sentences(result: Result | None) -> list[tuple[str, advice_text.Sentence]]:
    """The advice on each workload."""
    if result is None:
        return []
    return [(name, one) for name in workloads(result) for one in advice_text.sentences(result, name)]


def _of_defaults(measured: PlatformResults) -> list[str]:
    return [*advice_text.on_defaults(changes(measured)), *advice_text.on_data_parallel(measured)]


def tables(measured: PlatformResults) -> list[Table]:
    """The recommendations, everything they were chosen from, and the settings; all a trial on emulated devices."""
    result, trial = measured.of("strategies"), measured.emulated
    made = [advice_table.defaults(changes(measured))]
    if result:
        made = [*(of(result) for of in (advice_table.summary, advice_table.everything, advice_table.by_batch)), *made]
    if trial:
        made.insert(0, advice_table.told([*(one.text for _, one in _sentences(result)), *_of_defaults(measured)]))
    return [replace(table, trial=trial) for table in made if table.rows]
