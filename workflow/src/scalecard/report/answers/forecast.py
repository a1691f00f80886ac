"""How far does it scale?

Efficiency over the number of devices: 100 % if n devices are n times as fast as one. Lines are forecasts from parts
that were measured on fewer devices than the most, bands hold 95 % of what the parts' uncertainty allows, and lines are
dotted beyond what can be trusted. Full marks were measured and used; the large hollow ones, on the most devices, were
not: they show how well the forecast does. The dashed line is the efficiency below which more devices are not worth it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalecard import progress
from scalecard.analysis import by_key, formatting
from scalecard.analysis.forecast import forecast as numbers
from scalecard.analysis.forecast.fitted_terms import band, middle
from scalecard.analysis.forecast.forecast import (
    Forecast,
    HeldOut,
    Knee,
    OtherPrecision,
    accuracy,
    forecasts,
    in_other_precision,
    reasons,
    with_network,
    without_a_model,
)
from scalecard.analysis.forecast.model import PRESETS, Settings
from scalecard.analysis.platforms import PlatformResults
from scalecard.figures import charts, layout, points, style
from scalecard.figures.points import Point
from scalecard.records.statistics import Interval
from scalecard.records.strategies import DDP, FSDP_PARAMETERS, OUR_1F1B, TORCH_1F1B, Family
from scalecard.report.answers import not_timed
from scalecard.report.sections import Finding, Topic
from scalecard.report.sections.strategies import with_recipe
from scalecard.report.table import EMPTY, Cell, Table

Row = dict[str, str | Cell]
DRAWN = (DDP, FSDP_PARAMETERS, OUR_1F1B, TORCH_1F1B)  # of the others, tables tell
TITLES = {"strong": "same total batch", "weak": "batch grows with the devices"}
COSTS = {
    "smaller batch": "the smaller batch of each device",
    "company": "that ranks compute side by side",
    "slowest rank": "waiting for the slowest rank",
    "exchange": "exchanging gradients",
    "bubble": "the pipeline's bubble",
    "unequal stages": "unequal stages",
    "hand-over": "handing over between stages",
}
SHOWN = (16, 64, 256, 1024)


def plot(measured: PlatformResults) -> Figure:
    """A panel per workload and scaling."""
    found = _of(measured)
    by_panel = dict[str, list[Forecast]]()
    for one in found:
        workload = with_recipe(one.model.workload.strategies, one.model.workload.name)
        own = by_panel.setdefault(f"{workload}, {TITLES[one.model.scaling]}", [])
        own += [one] * (one.model.strategy in DRAWN)
    figure, panels = layout.panels(len(by_panel))
    for axes, (title, own) in zip(panels, (by_panel or {"": []}).items(), strict=True):
        axes.set_title(title)
        if not own:
            charts.nothing(axes)
            continue
        for one in own:
            _line(axes, one, measured.platform)
        farthest = max(one.shown[-1] for one in own)
        axes.axhline(own[0].settings.knee, color=style.INK, linewidth=0.8, linestyle="--")
        axes.set(xscale="log", xlabel="devices", ylabel="efficiency", ylim=(0, 1.12))
        charts.number_axis(axes.yaxis, "share")
        counts = max(own, key=lambda one: one.counts[-1]).counts
        charts.ticks(axes, [count for count in counts if count <= farthest])
    return figure


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
    layout.name_line_end(axes, one.shown[-1], curve[one.shown[-1]], name, colour)
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
    errors = [error(found), *errors_across(list(in_other_precision(found)))]
    made = [_sentence(" ".join(errors)), *_of_workloads(found)]
    if why:
        made.append(_sentence(f"DDP is not forecast: {why}."))
    by_reason = by_key((strategy.untimed, strategy.name) for strategy in without_a_model(measured.results))
    if by_reason:
        left = (f"{', '.join(names)} ({not_timed(*untimed)})" for untimed, names in by_reason.items())
        made.append(_sentence(f"No forecast for {'; '.join(left)}."))
    return made


def _sentence(text: str, headline: str = "") -> Finding:
    return Finding(text=text, headline=headline, topic=Topic.FORECAST)


def error(found: Sequence[Forecast]) -> str:
    """Forecast error on held-out measurements."""
    held_out = [(one, one.held_out) for one in found if one.held_out]
    if not held_out:
        return "No step was measured on the most devices, so the error of the forecast is not known."
    devices = " or ".join(map(str, sorted({held.layout.devices for _, held in held_out})))
    median, inside, count = accuracy([held for _, held in held_out])
    text = (
        f"The forecasts of steps on {devices} devices, none of which they had seen, miss the measured times by"
        f" {formatting.percent(median, 1)} (median of {count}); {inside} of {count} lie in their bands."
    )
    outside = [(abs(held.error), one) for one, held in held_out if not held.inside]
    if outside:  # a small median may hide a strategy that is not understood
        error, one = max(outside, key=lambda pair: pair[0])
        text += f" The farthest off is {', '.join(_case(one).values())} scaling, by {formatting.percent(error, 1)}."
    return text


def errors_across(found: Sequence[OtherPrecision]) -> Iterator[str]:
    """Forecast error in another precision than that of the parts: a sentence for each pair, none without any."""
    pairs = by_key(((one.own.model.workload.precision, one.precision, one.held_out.layout), one) for one in found)
    for (parts, forecast, held), own in pairs.items():
        largest = max(own, key=lambda one: abs(one.held_out.error))
        where = f"{largest.own.model.workload.name}, {largest.own.model.strategy.name}"
        text = (
            f"From measurements in {parts}, steps in {forecast} on {held.devices} devices are forecast with a median"
            f" error of {_median([one.held_out for one in own])}"
            f" ({progress.counted(len(own), 'step')}; largest"
            f" {formatting.percent(abs(largest.held_out.error), 1)}, {where})"
        )
        within = [one.within for one in own if one.within]
        yield f"{text}; within the recipe it is {_median(within)}." if len(within) == len(own) else f"{text}."


def _median(held_out: Sequence[HeldOut]) -> str:
    return formatting.percent(accuracy(held_out)[0], 1)


def _of_workloads(found: Sequence[Forecast]) -> Iterator[Finding]:
    """The strategy that goes farthest, of each workload and scaling: where its knee is, why, and what comes next."""
    for name in dict.fromkeys(one.model.workload.name for one in found):
        for scaling in ("strong", "weak"):
            own = [one for one in found if (one.model.workload.name, one.model.scaling) == (name, scaling)]
            if own:
                yield _how_far(max(own, key=_reach))


def _reach(one: Forecast) -> tuple[bool, float, float]:
    """Whether it can be trusted as far as was measured, where its knee is, how efficient the next count is."""
    return (
        one.trusted[0] >= one.model.workload.largest.devices,
        one.knee.devices or math.inf,
        middle(one.efficiencies[_next_count(one)]),
    )


def _next_count(one: Forecast) -> int:
    """Twice the most devices that were measured, or as many as can take part."""
    return max(count for count in one.counts if count <= 2 * one.model.workload.largest.devices)


def _how_far(one: Forecast) -> Finding:
    model, count, (trusted, why) = one.model, _next_count(one), one.trusted
    gain, between = one.speedup(count)
    network = f", with {_network(one.settings)} between nodes (assumed)" if one.assumed(count) else ""
    about = "about" if count <= trusted else "perhaps"
    there = f"{count} devices: {about} {gain:.3g}x of one ({between.low:.3g} to {between.high:.3g}){network}"
    until = f"Trust it up to {trusted} devices: beyond, {why}" if trusted > 1 else f"Do not rely on it: {why}"
    case = f"{model.workload.name}, {model.strategy.name}, {TITLES[model.scaling]}"
    text = f"{case}: {there}; {_efficiency_falls(one)}. {until}."
    return _sentence(text, f"{model.workload.name}: {_knee(one.knee)}")


def _efficiency_falls(one: Forecast) -> str:
    level, knee = formatting.percent(one.settings.knee), one.knee
    if knee.devices is None:
        return f"efficiency stays above {level} up to {one.counts[-1]} devices"
    where = f"at about {knee.devices:.0f} devices {_between(knee.between)}"
    where = where if knee.devices > 2 else "with 2 devices already"
    costs = COSTS.get(knee.dominates, knee.dominates)
    return f"efficiency falls below {level} {where}; what costs most there is {costs}"


def _knee(knee: Knee, *, between: bool = False) -> str:
    """'11 devices', with `between` '11 devices (9 to 14)'; 'below 2 devices' or 'not reached'."""
    if knee.devices is None:
        return "not reached"
    limits = f" {_between(knee.between)}" if between else ""
    return f"{knee.devices:.0f} devices{limits}" if knee.devices > 2 else "below 2 devices"


def _between(limits: Interval) -> str:
    low = f"{limits.low:.0f}" if math.isfinite(limits.low) else "beyond"
    return f"({low} to {limits.high:.0f})" if math.isfinite(limits.high) else f"({low} or more)"


def _network(settings: Settings) -> str:
    return f"{settings.gbit_per_s:g} Gbit/s per node"


def tables(measured: PlatformResults) -> list[Table]:
    """Forecast beside measurement; how far each strategy goes; with which network; and what training takes."""
    found = _of(measured)
    return [_held_out(found), _reached(found), *_networks(found), *_training(found)] if found else []


def _held_out(found: Sequence[Forecast]) -> Table:
    rows: list[Row] = [
        {
            **_case(one),
            "Devices": Cell(str(held.layout.devices), held.layout.devices),
            "Forecast": Cell(formatting.seconds(held.forecast), held.forecast),
            "Band (95 %)": Cell(_span(held.band, formatting.seconds), held.band.low),
            "Measured": Cell(formatting.seconds(held.measured.median), held.measured.median),
            "Error": Cell(f"{100 * held.error:+.1f} %", abs(held.error)),
            "In the band": Cell("yes" if held.inside else "no", float(held.inside)),
        }
        for one in found
        if (held := one.held_out)
    ]
    note = "No step on this number of devices was used for the forecast."
    return Table.of("Forecast and measurement on the most devices", rows, note)


def _reached(found: Sequence[Forecast]) -> Table:
    level, settings = formatting.percent(found[0].settings.knee), found[0].settings
    rows: list[Row] = [
        {
            **_case(one),
            f"Below {level} from": Cell(_knee(one.knee, between=True), one.knee.devices or 1e9),
            "Because of": "" if one.knee.devices is None else one.knee.dominates,
            "Worth trying": Cell(", ".join(map(str, one.worth_trying)) or "none", len(one.worth_trying)),
            "Trusted to": Cell(str(one.trusted[0]), one.trusted[0]),
            **_efficiencies(one),
        }
        for one in found
    ]
    note = (
        f"Efficiency on more devices, with its band. Between nodes {_network(settings)} and {settings.latency_us:g} µs"
        " are assumed, if no nodes were measured: forecast in config.yaml."
    )
    return Table.of("How far each strategy goes", rows, note)


def _efficiencies(one: Forecast) -> Row:
    row = Row()
    for count in SHOWN:
        values, cell = one.efficiencies.get(count), EMPTY
        if values is not None:
            between = _span(band(values), lambda share: f"{100 * share:.0f}")
            cell = Cell(f"{formatting.percent(middle(values))} ({between})", middle(values))
        row[f"On {count}"] = cell
    return row


def _span(limits: Interval, show: Callable[[float], str]) -> str:
    return f"{show(limits.low)} to {show(limits.high)}"


def _case(one: Forecast) -> dict[str, str]:
    return {
        "Workload": one.model.workload.name,
        "Strategy": one.model.strategy.name,
        "Scaling": one.model.scaling,
    }


def _networks(found: Sequence[Forecast]) -> Iterator[Table]:
    """What the usual networks between nodes would change; nothing if nodes were measured."""
    rows = list[Row]()
    for one in sorted(found, key=lambda one: [*_case(one).values()]):
        for rate in PRESETS if one.model.strategy.family is Family.DATA and any(map(one.assumed, one.counts)) else ():
            other = with_network(one, rate)
            knee = Cell(_knee(other.knee), other.knee.devices or 1e9)
            between = {"Between nodes": Cell(f"{rate:g} Gbit/s", rate), "Below the knee from": knee}
            rows.append({**_case(one), **between, **_efficiencies(other)})
    if rows:
        note = "Assumed networks, of a whole node each way: none was measured here."
        yield Table.of("With other networks", rows, note)


def _training(found: Sequence[Forecast]) -> Iterator[Table]:
    """Hours and energy to train so many samples on each number of devices, with the fastest strategy there."""
    rows = list[Row]()
    for own in by_key((one.model.workload.name, one) for one in found).values():
        for count in sorted({count for one in own for count in one.counts if count <= one.trusted[0]}):
            able = [one for one in own if count <= one.trusted[0] and count in one.efficiencies]
            rows.append(_trained(min(able, key=lambda one: middle(one.training_seconds(count))), count))
    energy = any(row["Energy"] != EMPTY for row in rows)
    note = f"For {formatting.count(found[0].settings.samples)} samples (forecast.samples in config.yaml)." + (
        " Energy is that of the devices that train." if energy else " No energy was measured."
    )
    if rows:
        yield Table.of("Time and energy to train" if energy else "Time to train", rows, note)


def _trained(one: Forecast, count: int) -> Row:
    seconds, joules = one.training_seconds(count), one.training_joules(count)
    limits = band(seconds)
    return {
        "Workload": one.model.workload.name,
        "Devices": Cell(str(count), count),
        "Strategy": one.model.strategy.name if count > 1 else "",
        "Scaling": one.model.scaling if count > 1 else "",
        "Time": Cell(_duration(middle(seconds)), middle(seconds)),
        "Band (95 %)": Cell(_span(limits, _duration), limits.low),
        "Energy": EMPTY if joules is None else Cell(f"{joules / 3.6e6:.3g} kWh", joules),
    }


def _duration(seconds: float) -> str:
    unit, scale = next((one for one in (("h", 3600), ("min", 60)) if seconds >= one[1]), ("s", 1))
    return f"{seconds / scale:.3g} {unit}"


def calculator(measured: PlatformResults) -> dict[str, Any]:
    """What calculator.html.j2 embeds; empty without a forecast of DDP, and of emulated devices, which advise nobody."""
    return {} if measured.emulated else numbers.data(_of(measured))


def _settings(measured: PlatformResults) -> Settings:
    return Settings(**measured.settings.get("forecast", {}))


@lru_cache(maxsize=1)  # findings, tables and the calculator are of the same forecasts
def _of(measured: PlatformResults) -> list[Forecast]:
    return list(forecasts(measured.results, _settings(measured)))
