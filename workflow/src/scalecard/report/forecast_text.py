"""Forecasts in sentences and tables."""

import math
from collections.abc import Iterator, Sequence
from itertools import product

from scalecard.analysis import formatting
from scalecard.analysis.forecast.forecast import Forecast, Knee, accuracy, with_network
from scalecard.analysis.forecast.inputs import band, middle
from scalecard.analysis.forecast.model import PRESETS, Settings
from scalecard.records.statistics import Interval
from scalecard.records.strategies import Family
from scalecard.report.table import EMPTY, Cell, Table

Sentence = tuple[str, str]  # and its headline
Cells = list[Cell]
REMEDY = {
    "smaller batch": "the smaller batch of each device",
    "company": "that ranks compute side by side",
    "slowest rank": "waiting for the slowest rank",
    "exchange": "exchanging gradients",
    "bubble": "the pipeline's bubble",
    "unequal stages": "unequal stages",
    "hand-over": "handing over between stages",
}
SHOWN = (16, 64, 256, 1024)


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
        case = ", ".join(cell.text for cell in _case(one))
        text += f" The farthest off is {case} scaling, by {formatting.percent(error, 1)}."
    return text


def of_workloads(found: Sequence[Forecast]) -> Iterator[Sentence]:
    """Of each workload: the strategy and scaling that go farthest, the knee, what dominates, and what is next."""
    for name in dict.fromkeys(one.model.workload.name for one in found):
        for scaling in ("strong", "weak"):
            own = [one for one in found if (one.model.workload.name, one.model.scaling) == (name, scaling)]
            if own:
                yield _sentence(max(own, key=_reach))


def _reach(one: Forecast) -> tuple[bool, float, float]:
    """Whether it can be trusted as far as was measured, where its knee is, how efficient the next count is."""
    return (
        one.trusted[0] >= one.model.workload.largest.devices,
        one.knee.devices or math.inf,
        middle(one.efficiencies[next_count(one)]),
    )


def next_count(one: Forecast) -> int:
    """Twice the most devices that were measured, or as many as can take part."""
    return max(count for count in one.counts if count <= 2 * one.model.workload.largest.devices)


def _sentence(one: Forecast) -> Sentence:
    model, count = one.model, next_count(one)
    how = "one device's batch shared by all" if model.scaling == "strong" else "as many samples on each device"
    gain, between = one.speedup(count)
    network = f", with {_network(one.settings)} between nodes (assumed)" if one.assumed(count) else ""
    would = "would" if count <= one.trusted[0] else "might"
    factor = f"{gain:.3g} times as fast as one ({between.low:.3g} to {between.high:.3g})"
    there = f"{count} devices {would} be {factor}{network}"
    text = f"{model.workload.name}, {model.strategy.name}, {how}: {there}; {_knee(one)}. {_until(one)}"
    return text, f"{model.workload.name}: {knee_words(one.knee)}"


def _knee(one: Forecast) -> str:
    level, knee = formatting.percent(one.settings.knee), one.knee
    if knee.devices is None:
        return f"efficiency stays above {level} up to {one.counts[-1]} devices"
    dominates = REMEDY.get(knee.dominates, knee.dominates)
    where = f"at about {knee.devices:.0f} devices {_between(knee.between)}"
    where = where if knee.devices > 2 else "with 2 devices already"
    return f"efficiency falls below {level} {where}; what costs most there is {dominates}"


def _until(one: Forecast) -> str:
    count, why = one.trusted
    return f"Trust it up to {count} devices: beyond, {why}." if count > 1 else f"Do not rely on it: {why}."


def knee_words(knee: Knee, *, between: bool = False) -> str:
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


def held_out(found: Sequence[Forecast]) -> Table:
    """Forecast and measurement of every step on the most devices."""
    rows: list[Cells] = [
        [
            *_case(one),
            Cell(str(held.layout.devices), held.layout.devices),
            Cell(formatting.seconds(held.forecast), held.forecast),
            Cell(f"{formatting.seconds(held.band.low)} to {formatting.seconds(held.band.high)}", held.band.low),
            Cell(formatting.seconds(held.measured.median), held.measured.median),
            Cell(f"{100 * held.error:+.1f} %", abs(held.error)),
            Cell("yes" if held.inside else "no", float(held.inside)),
        ]
        for one in found
        if (held := one.held_out)
    ]
    head = ["Workload", "Strategy", "Scaling", "Devices", "Forecast", "Band (95 %)", "Measured", "Error", "In the band"]
    note = "No step on this number of devices was used for the forecast."
    return Table("Forecast and measurement on the most devices", head, rows, note)


def how_far(found: Sequence[Forecast]) -> Table:
    """The knee, and the efficiency on more devices than there are."""
    rows: list[Cells] = [
        [
            *_case(one),
            Cell(knee_words(one.knee, between=True), one.knee.devices or 1e9),
            Cell("" if one.knee.devices is None else one.knee.dominates),
            Cell(", ".join(map(str, one.worth_trying)) or "none", len(one.worth_trying)),
            Cell(str(one.trusted[0]), one.trusted[0]),
            *(_efficiency(one, count) for count in SHOWN),
        ]
        for one in found
    ]
    level, settings = formatting.percent(found[0].settings.knee), found[0].settings
    head = ["Workload", "Strategy", "Scaling", f"Below {level} from", "Because of", "Worth trying", "Trusted to"]
    note = (
        f"Efficiency on more devices, with its band. Between nodes {_network(settings)} and {settings.latency_us:g} µs"
        " are assumed, if no nodes were measured: forecast in config.yaml."
    )
    return Table("How far each strategy goes", [*head, *(f"On {count}" for count in SHOWN)], rows, note)


def _efficiency(one: Forecast, count: int) -> Cell:
    if count not in one.efficiencies:
        return EMPTY
    values, limits = one.efficiencies[count], band(one.efficiencies[count])
    text = f"{formatting.percent(middle(values))} ({100 * limits.low:.0f} to {100 * limits.high:.0f})"
    return Cell(text, middle(values))


def _case(one: Forecast) -> Cells:
    return [Cell(one.model.workload.name), Cell(one.model.strategy.name), Cell(one.model.scaling)]


def networks(found: Sequence[Forecast]) -> Iterator[Table]:
    """What the usual networks between nodes would change; nothing if nodes were measured."""
    rows = list[Cells]()
    for rate, one in product(PRESETS, found):
        if one.model.strategy.family is Family.DATA and any(map(one.assumed, one.counts)):
            other = with_network(one, rate)
            knee = Cell(knee_words(other.knee), other.knee.devices or 1e9)
            rows.append([*_case(one), Cell(f"{rate:g} Gbit/s", rate), knee, *(_efficiency(other, n) for n in SHOWN)])
    if rows:
        head = ["Workload", "Strategy", "Scaling", "Between nodes", "Below the knee from", *(f"On {n}" for n in SHOWN)]
        note = "Assumed networks, of a whole node each way: none was measured here."
        yield Table("With other networks", head, sorted(rows, key=lambda row: [cell.text for cell in row[:3]]), note)


def training(found: Sequence[Forecast]) -> Iterator[Table]:
    """Hours and energy to train so many samples on each number of devices, with the fastest strategy there."""
    rows = list[Cells]()
    for name in dict.fromkeys(one.model.workload.name for one in found):
        own = [one for one in found if one.model.workload.name == name]
        for count in sorted({count for one in own for count in one.counts if count <= one.trusted[0]}):
            able = [one for one in own if count <= one.trusted[0] and count in one.efficiencies]
            best = min(able, key=lambda one: middle(one.training_seconds(count)))
            rows.append([Cell(name), Cell(str(count), count), *_training(best, count)])
    samples = formatting.count(found[0].settings.samples)
    head = ["Workload", "Devices", "Strategy", "Scaling", "Time", "Band (95 %)", "Energy"]
    note = f"For {samples} samples (forecast.samples in config.yaml). Energy is that of the devices that train."
    if any(row[-1].text for row in rows):
        yield Table("Time and energy to train", head, rows, note)
    elif rows:
        note = f"For {samples} samples (forecast.samples in config.yaml). No energy was measured."
        yield Table("Time to train", head[:-1], [row[:-1] for row in rows], note)


def _training(one: Forecast, count: int) -> Cells:
    seconds, joules = one.training_seconds(count), one.training_joules(count)
    limits = band(seconds)
    return [
        Cell(one.model.strategy.name if count > 1 else ""),
        Cell(one.model.scaling if count > 1 else ""),
        Cell(_duration(middle(seconds)), middle(seconds)),
        Cell(f"{_duration(limits.low)} to {_duration(limits.high)}", limits.low),
        EMPTY if joules is None else Cell(f"{joules / 3.6e6:.3g} kWh", joules),
    ]


def _duration(seconds: float) -> str:
    unit, scale = next((one for one in (("h", 3600), ("min", 60)) if seconds >= one[1]), ("s", 1))
    return f"{seconds / scale:.3g} {unit}"
