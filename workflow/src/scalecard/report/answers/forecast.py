"""How far does it scale?

Efficiency over the number of devices: 100 % if n devices are n times as fast as one. Lines are forecasts from parts
that were measured on fewer devices than the most, bands hold 95 % of what the parts' uncertainty allows, and lines are
dotted beyond what can be trusted. Full marks were measured and used; the large hollow ones, on the most devices, were
not: they show how well the forecast does. The dashed line is the efficiency below which more devices are not worth it.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalecard.analysis.forecast import forecast as numbers
from scalecard.analysis.forecast.forecast import Forecast, forecasts, reasons, without_a_model
from scalecard.analysis.forecast.inputs import band, middle
from scalecard.analysis.forecast.model import Settings
from scalecard.analysis.platforms import PlatformResults
from scalecard.figures import charts, points, style
from scalecard.figures.points import Point
from scalecard.records.strategies import DDP, FSDP_PARAMETERS, OUR_1F1B, TORCH_1F1B, Untimed
from scalecard.report import forecast_text
from scalecard.report.answers import not_timed
from scalecard.report.sections import Finding, Topic
from scalecard.report.table import Table

DRAWN = (DDP, FSDP_PARAMETERS, OUR_1F1B, TORCH_1F1B)  # of the others, tables tell
TITLES = {"strong": "one device's batch for all", "weak": "as many samples on each"}


def plot(measured: PlatformResults) -> Figure:
    """A panel per workload and scaling."""
    found = _of(measured)
    by_panel = dict[str, list[Forecast]]()
    for one in found:
        own = by_panel.setdefault(f"{one.model.workload.name}, {TITLES[one.model.scaling]}", [])
        own += [one] * (one.model.strategy in DRAWN)
    figure, panels = charts.panels(len(by_panel), height=1.1 * style.HEIGHT)
    for axes, (title, own) in zip(panels, (by_panel or {"": []}).items(), strict=True):
        _panel(axes, own, measured.platform)
        axes.set_title(title)
    return figure


def _panel(axes: Axes, found: Sequence[Forecast], platform: str) -> None:
    if not found:
        charts.nothing(axes)
        return
    for one in found:
        _line(axes, one, platform)
    farthest = max(one.shown[-1] for one in found)
    axes.axhline(found[0].settings.knee, color=style.INK, linewidth=0.8, linestyle="--")
    axes.set(xscale="log", xlabel="devices", ylabel="efficiency", ylim=(0, 1.12))
    charts.number_axis(axes.yaxis, "share")
    counts = [count for count in max(found, key=lambda one: one.counts[-1]).counts if count <= farthest]
    charts.ticks(axes, counts)


def _line(axes: Axes, one: Forecast, platform: str) -> None:
    name, until = one.model.strategy.name, one.trusted[0]
    colour = style.colour(name)
    curve = {count: middle(one.efficiencies[count]) for count in one.shown}
    limits = [band(one.efficiencies[count]) for count in one.shown]
    low, high = [limit.low for limit in limits], [limit.high for limit in limits]
    axes.fill_between(one.shown, low, high, color=colour, alpha=0.15, linewidth=0)
    trusted, beyond = [n for n in one.shown if n <= until], [n for n in one.shown if n >= until]
    axes.plot(trusted, [curve[count] for count in trusted], color=colour)
    axes.plot(beyond, [curve[count] for count in beyond], color=colour, linestyle=":")
    charts.name_line_end(axes, one.shown[-1], curve[one.shown[-1]], name, colour)
    series = f"{name}, forecast"
    for count, limit in zip(one.shown, limits, strict=True):
        point = Point(series=series, x=count, value=curve[count], interval=limit, samples=None, platform=platform)
        axes.plot([count], [curve[count]], "o", ms=7, alpha=0, gid=points.show(axes, point, "share"))
    marker = style.marker(name)
    known = {layout.devices: one.measured_efficiency(record) for layout, record in one.model.known.items()}
    axes.plot(list(known), list(known.values()), marker, color=colour, markersize=5)
    if held := one.held_out:
        x, y = [held.layout.devices], [one.measured_efficiency(held.measured)]
        axes.plot(x, y, marker, color=colour, markersize=9, fillstyle="none", markeredgewidth=1.5)


def findings(measured: PlatformResults) -> list[Finding]:
    """The error first; then the knee of each workload, and twice as many devices as there are."""
    found, why = _of(measured), "; ".join(reasons(measured.results, _settings(measured)))
    if not found:
        text = f"No forecast: {why or '`strategies` was not measured'}."
        return [Finding(text=text, headline="no forecast", topic=Topic.NOT_MEASURED)]
    sentences = [(forecast_text.error(found), ""), *forecast_text.of_workloads(found)]
    if why:
        sentences.append((f"DDP is not forecast: {why}.", ""))
    by_reason = dict[tuple[Untimed, ...], list[str]]()
    for strategy in without_a_model(measured.results):
        by_reason.setdefault(strategy.untimed, []).append(strategy.name)
    if by_reason:
        left = (f"{', '.join(names)} ({not_timed(*untimed)})" for untimed, names in by_reason.items())
        sentences.append((f"No forecast for {'; '.join(left)}.", ""))
    return [Finding(text=text, headline=headline, topic=Topic.FORECAST) for text, headline in sentences]


def tables(measured: PlatformResults) -> list[Table]:
    """Forecast beside measurement; how far each strategy goes; with which network; and what training takes."""
    found = _of(measured)
    if not found:
        return []
    return [
        forecast_text.held_out(found),
        forecast_text.how_far(found),
        *forecast_text.networks(found),
        *forecast_text.training(found),
    ]


def calculator(measured: PlatformResults) -> dict[str, Any]:
    """What calculator.html.j2 embeds; empty without a forecast of DDP, and of emulated devices, which advise nobody."""
    return {} if measured.emulated else numbers.data(_of(measured))


def _settings(measured: PlatformResults) -> Settings:
    return Settings.of(measured.settings.get("forecast", {}))


@lru_cache(maxsize=1)  # findings, tables and the calculator are of the same forecasts
def _of(measured: PlatformResults) -> list[Forecast]:
    return list(forecasts(measured.results, _settings(measured)))
