"""How far does it scale?

Efficiency over the number of devices: 100 % if n devices are n times as fast as one. Lines are forecasts from parts
that were measured on fewer devices than the most, bands hold 95 % of what the parts' uncertainty allows, and lines are
dotted beyond what can be trusted. Full marks were measured and used; the large hollow ones, on the most devices, were
not: they show how well the forecast does. The dashed line is the efficiency below which more devices are not worth it.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalecard.report import charts, style
from scalecard.report.answers import Measured
from scalecard.report.forecast import calculator as numbers
from scalecard.report.forecast import told
from scalecard.report.forecast.draws import band, middle
from scalecard.report.forecast.forecast import Forecast, forecasts, reasons
from scalecard.report.forecast.settings import Settings
from scalecard.report.sections import Finding
from scalecard.report.strategy_table import Table

DRAWN = ("DDP", "FSDP parameters", "our 1f1b", "torch 1f1b")  # of the others, tables tell
TITLES = {"strong": "one device's batch for all", "weak": "as many samples on each"}


def plot(measured: Measured) -> Figure:
    """A row per workload, a column per scaling."""
    found = _of(measured)
    names = list(dict.fromkeys(one.model.workload.name for one in found))
    scalings = [scaling for scaling in TITLES if any(one.model.scaling == scaling for one in found)] or ["strong"]
    size = (5.4 * max(1.5, len(scalings)), 3.6 * max(1, len(names)))
    figure, panels = plt.subplots(max(1, len(names)), len(scalings), squeeze=False, figsize=size)
    for name, row in zip(names or [""], panels, strict=True):
        for scaling, axes in zip(scalings, row, strict=True):
            of_panel = [one for one in found if (one.model.workload.name, one.model.scaling) == (name, scaling)]
            _panel(axes, [one for one in of_panel if one.model.strategy in DRAWN])
            axes.set_title(f"{name}, {TITLES[scaling]}" if name else "")
    sns.despine(figure)
    return figure


def _panel(axes: Axes, found: Sequence[Forecast]) -> None:
    if not found:
        charts.nothing(axes)
        return
    for one in found:
        _line(axes, one)
    farthest = max(one.shown[-1] for one in found)
    axes.axhline(100 * found[0].settings.knee, color=style.INK, linewidth=0.8, linestyle="--")
    axes.set(xscale="log", xlabel="devices", ylabel="efficiency (%)", ylim=(0, 112))
    counts = [count for count in max(found, key=lambda one: one.counts[-1]).counts if count <= farthest]
    charts.ticks(axes, counts)
    charts.legend(axes)


def _line(axes: Axes, one: Forecast) -> None:
    name, colour, until = one.model.strategy, style.colour(one.model.strategy), one.trusted[0]
    curve = {count: 100 * middle(one.efficiencies[count]) for count in one.shown}
    limits = [band(100 * one.efficiencies[count]) for count in one.shown]
    axes.fill_between(
        one.shown, [b.low for b in limits], [b.high for b in limits], color=colour, alpha=0.15, linewidth=0
    )
    trusted = [count for count in one.shown if count <= until]
    axes.plot(trusted, [curve[count] for count in trusted], color=colour, label=name)
    beyond = [count for count in one.shown if count >= until]
    axes.plot(beyond, [curve[count] for count in beyond], color=colour, linestyle=":")
    marker = style.marker(name)
    known = {layout.devices: 100 * one.measured_efficiency(record) for layout, record in one.model.known.items()}
    axes.plot(list(known), list(known.values()), marker, color=colour, markersize=5)
    if held := one.held_out:
        at = 100 * one.measured_efficiency(held.measured)
        axes.plot(
            [held.layout.devices], [at], marker, color=colour, markersize=9, fillstyle="none", markeredgewidth=1.5
        )


def findings(measured: Measured) -> list[Finding]:
    """The error first; then the knee of each workload, and twice as many devices as there are."""
    found, why = _of(measured), "; ".join(reasons(measured.results, _settings(measured)))
    if not found:
        text = f"No forecast: {why or '`strategies` was not measured'}."
        return [Finding(text=text, headline="no forecast", priority=90)]
    sentences = [told.error(found), *told.of_workloads(found)]
    if why:
        sentences.append((f"DDP is not forecast: {why}.", ""))
    return [Finding(text=text, headline=headline, priority=28) for text, headline in sentences]


def tables(measured: Measured) -> list[Table]:
    """Forecast beside measurement; how far each strategy goes; with which network; and what training takes."""
    found = _of(measured)
    if not found:
        return []
    return [told.held_out(found), told.how_far(found), *told.networks(found), *told.training(found)]


def calculator(measured: Measured) -> dict[str, Any]:
    """What calculator.html.j2 embeds; empty without a forecast of DDP, and of emulated devices, which advise nobody."""
    return {} if measured.emulated else numbers.data(_of(measured))


def _settings(measured: Measured) -> Settings:
    return Settings.of(measured.settings.get("forecast", {}))


@lru_cache(maxsize=1)  # findings, tables and the calculator are of the same forecasts
def _of(measured: Measured) -> list[Forecast]:
    return list(forecasts(measured.results, _settings(measured)))
