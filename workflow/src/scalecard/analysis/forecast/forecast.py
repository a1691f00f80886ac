"""A forecast: what a model says of every number of devices, where it fails, and how it did where it was not fitted.

What the page's calculator computes with: this machine's fitted curves as plain numbers.

It asks for a model of the reader's own: the bytes of its gradients, one device's step, its batch, and the network. The
formula is that of DDP (model.py, fitted_terms.py); report.js has it again, and a test compares the two.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from scalecard.analysis.forecast.fitted_terms import Draws, band, middle, of_record
from scalecard.analysis.forecast.inputs import SCALINGS, workloads
from scalecard.analysis.forecast.model import PRESETS, DataParallel, Model, Pipeline, Settings
from scalecard.analysis.forecast.network import Layout, layout_of
from scalecard.records.axes import BASELINE
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Interval
from scalecard.records.strategies import ALL, DDP, OTHER_RECIPE, Collective, Family, Strategy

COUNTS = [2**k for k in range(11)]
WIDEST = 0.25  # half of a band, relative: beyond it a forecast says too little
FARTHEST = 64  # times the devices that the fit has seen
MODELS: dict[Strategy, type[Model]] = {  # of all strategies whose parts are timed alone
    strategy: DataParallel if strategy.family is Family.DATA else Pipeline
    for strategy in ALL
    if strategy.family in (Family.DATA, Family.STAGES) and not strategy.untimed
}
SIZES = [4.0**k for k in range(6, 18)]  # bytes of an all-reduce: 4 KiB to 16 GiB
NUM_DRAWS = 41  # of what overlaps; the page takes the median
DIGITS = 5


@dataclass(frozen=True)
class HeldOut:
    """A measured step that the forecast had not seen, by default on the most devices. Seconds."""

    layout: Layout
    measured: Record
    forecast: float
    band: Interval

    @property
    def error(self) -> float:
        """Relative: 0.05 if the forecast is 5 % too slow."""
        return self.forecast / self.measured.median - 1

    @property
    def inside(self) -> bool:
        return self.band.low <= self.measured.median <= self.band.high


@dataclass(frozen=True)
class Knee:
    """The first number of devices on which efficiency is too low, where it is expected, and what costs most there.

    `devices` is None if that is beyond what is forecast; a limit of `between` is infinite if that is.
    """

    devices: float | None
    between: Interval
    dominates: str


@dataclass(frozen=True, eq=False)
class Forecast:
    """One workload, strategy and scaling."""

    model: Model
    settings: Settings

    @cached_property
    def counts(self) -> list[int]:
        """Powers of two and what was measured, as far as there is something for every device to do."""
        limit = self.model.limit or COUNTS[-1]
        measured = [layout.devices for layout in self.model.steps]
        return sorted(count for count in {*COUNTS, *measured} if count <= limit)

    @cached_property
    def efficiencies(self) -> dict[int, Draws]:
        """The ideal over the step: 1 if n devices are n times as fast as one."""
        return {count: self.model.ideal(count) / self.model.seconds(count) for count in self.counts}

    @property
    def shown(self) -> list[int]:
        """Counts up to four times what can be trusted, or what was measured."""
        last = max(4 * self.trusted[0], *(layout.devices for layout in self.model.steps))
        return [count for count in self.counts if count <= last]

    def measured_efficiency(self, step: Record) -> float:
        """Of a step that was measured."""
        return middle(self.model.ideal(step.integer("devices"))) / step.median

    @cached_property
    def held_out(self) -> HeldOut | None:
        """None if the largest number of devices has no such step."""
        largest = self.model.workload.largest
        step = self.model.steps.get(largest)
        if step is None or largest.devices > self.counts[-1]:
            return None
        seconds = self.model.seconds(largest.devices)
        return HeldOut(largest, step, middle(seconds), band(seconds))

    @cached_property
    def knee(self) -> Knee:
        """Between two counts the efficiency is taken to change evenly with the logarithm of the number."""
        curve = np.stack([self.efficiencies[count] for count in self.counts], axis=1)
        each = [_crossing(self.counts, row, self.settings.knee) for row in curve]
        here = _crossing(self.counts, np.median(curve, axis=0), self.settings.knee)
        low, high = (float(np.quantile(each, q, method="nearest")) for q in (0.025, 0.975))
        near = next((count for count in self.counts if count >= here), self.counts[-1])
        return Knee(here if math.isfinite(here) else None, Interval(low, high), self.dominates(near))

    def dominates(self, devices: int) -> str:
        """The term that costs most on so many devices, beside the ideal."""
        terms = {name: middle(values) for name, values in self.model.terms(devices).items() if name != "ideal"}
        most = max(terms, key=terms.__getitem__, default="")
        return most if terms.get(most, 0) > 0 else "nothing that is modelled"

    @cached_property
    def trusted(self) -> tuple[int, str]:
        """The largest count that can be trusted, and what is so beyond it."""
        last, fitted = 1, max(2, self.model.most)
        for count in self.counts:
            values, least = self.efficiencies[count], self.model.workload.local.least
            if band(values).half_width > WIDEST * middle(values):
                return last, f"the band is wider than ±{100 * WIDEST:.0f} %"
            if count > FARTHEST * fitted:
                return last, f"it is extrapolated more than {FARTHEST}-fold"
            if self.model.whole(count) / count < least:
                return last, f"a device has fewer samples than the {least} that were timed alone"
            last = count
        return last, "there are fewer samples than devices" if self.model.limit else "nothing is forecast"

    def assumed(self, devices: int) -> bool:
        """Whether these are on several nodes of which no network was measured."""
        over = isinstance(self.model, DataParallel) and any(e.over for e in self.model.exchanges.values())
        return devices > self.model.workload.per_node and not over

    @property
    def worth_trying(self) -> list[int]:
        """Trusted counts above one before the knee."""
        last = self.trusted[0]
        return [n for n in self.counts if 1 < n <= last and middle(self.efficiencies[n]) >= self.settings.knee]

    def speedup(self, devices: int) -> tuple[float, Interval]:
        """How many times the samples per second of one device, with its band."""
        found = devices * self.efficiencies[devices]
        return middle(found), band(found)

    def training_seconds(self, devices: int) -> Draws:
        """Of `settings.samples` samples."""
        steps = self.settings.samples / self.model.whole(devices)
        return steps * self.model.seconds(devices)

    def training_joules(self, devices: int) -> float | None:
        """Of the devices that train; None if no energy was measured."""
        return None if self.watts is None else self.watts * devices * middle(self.training_seconds(devices))

    @cached_property
    def watts(self) -> float | None:
        """Of a device that trains, told from idle ones by steps on different numbers of devices."""
        visible = len(self.model.workload.strategies.environment["gpus"])
        single = self.model.workload.single
        steps = {Layout(1): single, **self.model.known} if single else self.model.known
        found = list[tuple[float, float]]()  # devices of a node that train, and the power of all
        for at, step in steps.items():
            if joules := [entry.joules for entry in step.telemetry if entry.joules is not None]:
                found.append((at.devices / at.nodes, statistics.median(joules) / step.median))
        if not found or not visible:
            return None
        rows = np.array([[busy, max(0.0, visible - busy)] for busy, _ in found])
        if len(found) == 1 or np.linalg.matrix_rank(rows) < 2:
            return found[0][1] / visible
        busy, _ = np.linalg.lstsq(rows, np.array([power for _, power in found]), rcond=None)[0]
        return float(busy) if busy > 0 else None


def _crossing(counts: list[int], curve: Draws, level: float) -> float:
    """Where a curve over counts falls below the level for the first time; infinite if nowhere."""
    for place in range(1, len(counts)):
        before, after = float(curve[place - 1]), float(curve[place])
        if after < level:
            share = min(1.0, max(0.0, (before - level) / (before - after))) if before > after else 0.0
            return float(counts[place - 1] * (counts[place] / counts[place - 1]) ** share)
    return math.inf


def with_network(one: Forecast, gbit_per_s: float) -> Forecast:
    """The same with another network between nodes."""
    settings = replace(one.settings, gbit_per_s=gbit_per_s)
    return Forecast(replace(one.model, network=settings.network), settings)


def forecasts(results: Mapping[str, Result], settings: Settings) -> Iterator[Forecast]:
    """Of every workload, strategy and scaling that was measured on several devices, and can be told from its parts."""
    for workload in workloads(results, settings.devices_per_node):
        for strategy, kind in MODELS.items():
            for scaling in SCALINGS:
                model = kind(workload, settings.network, strategy, scaling)
                if model.steps and not why_not(model):
                    yield Forecast(model, settings)


def without_a_model(results: Mapping[str, Result]) -> list[Strategy]:
    """Those that were measured on several devices and cannot be forecast, because not all of a step is timed alone."""
    result = results.get("strategies")
    steps = result.select("step_time") if result else []
    timed = {step.case["strategy"] for step in steps if layout_of(step).devices > 1}
    return [strategy for strategy in ALL if strategy.name in timed and strategy not in MODELS]


def why_not(model: Model) -> str:
    """Why nothing can be forecast; empty if it can."""
    if model.workload.single is None:
        return "one device alone was not timed"
    if not model.workload.local.known and (model.scaling == "strong" or isinstance(model, Pipeline)):
        return "one device alone was not timed with smaller batches"
    if isinstance(model, DataParallel):
        if not model.exchanges[Collective.ALL_REDUCE].known:
            return "no all-reduce was timed"
        if not model.workload.volume[0]:
            return "the bytes of its gradients were not counted"
    return ""


def reasons(results: Mapping[str, Result], settings: Settings) -> list[str]:
    """Why there is no forecast of what was measured, each once; of DDP with either scaling."""
    found = list[str]()
    for workload in workloads(results, settings.devices_per_node):
        timed = {r.text("scaling") for r in workload.strategies.select("step_time", workload=workload.name)}
        for scaling in sorted(timed):
            model = DataParallel(workload, settings.network, DDP, scaling)
            found.append(why_not(model) if model.steps else "DDP was not timed on several devices")
    return list(dict.fromkeys(filter(None, found)))


def accuracy(held_out: Sequence[HeldOut]) -> tuple[float, int, int]:
    """(median absolute error, held-out steps inside their bands, held-out steps)."""
    return statistics.median(abs(one.error) for one in held_out), sum(one.inside for one in held_out), len(held_out)


@dataclass(frozen=True, eq=False)
class OtherPrecision:
    """A strategy's step in another `precision` than that of the parts, on all devices of a node.

    All that is fitted is fitted to the workload's own recipe. Of the other precision two things are known: one device's
    step, which sets the pace of computing, and the bytes of what is exchanged.
    """

    own: Forecast
    precision: str
    held_out: HeldOut

    @property
    def within(self) -> HeldOut | None:
        """The same strategy on as many devices in the precision of the parts; None if it was not held out there."""
        own = self.own.held_out
        return own if own and own.layout == self.held_out.layout else None


def in_other_precision(found: Sequence[Forecast]) -> Iterator[OtherPrecision]:
    """Of every forecast whose workload was also trained by a recipe that differs in precision alone."""
    for one in found:
        single = one.model.workload.single
        alone = single and _in_another(one, single)
        step = _in_another(one, next(iter(one.model.steps.values())), devices=one.model.workload.measured_per_node)
        if single is None or alone is None or step is None:
            continue
        layout, precision = layout_of(step), step.text("precision", BASELINE)
        seconds = one.model.in_precision(precision, of_record(alone) / of_record(single), layout.devices)
        yield OtherPrecision(one, precision, HeldOut(layout, step, middle(seconds), band(seconds)))


def _in_another(one: Forecast, own: Record, *, devices: int = 1) -> Record | None:
    """Like a step of the workload's own recipe, on so many devices of one node; what is recomputed is the same."""
    axes = ("workload", "strategy", "scaling", "checkpointing")
    case = {axis: own.case.get(axis) for axis in axes}
    return one.model.workload.strategies.find(OTHER_RECIPE["step_time"], **case, devices=devices, nodes=None)


def data(found: Sequence[Forecast]) -> dict[str, Any]:
    """Times in seconds, by the places of `counts` and `sizes`; empty without a forecast of DDP."""
    of_ddp = [one for one in found if one.model.strategy is DDP]
    if not of_ddp:
        return {}
    first = {one.model.workload.name: one.model for one in reversed(of_ddp) if isinstance(one.model, DataParallel)}
    return {
        "counts": COUNTS,
        "sizes": SIZES,
        "knee": of_ddp[0].settings.knee,
        "networks": _networks(of_ddp[0]),
        "workloads": [_workload(name, model) for name, model in reversed(first.items())],
    }


def _networks(one: Forecast) -> list[dict[str, Any]]:
    """What an all-reduce takes with what was measured between nodes or, if that is nothing, with each usual network."""
    if not one.assumed(COUNTS[-1]):
        return [{"name": "as measured between nodes", "times": _times(one)}]
    within = replace(one.model, workload=replace(one.model.workload, per_node=COUNTS[-1]))
    rates = sorted({*PRESETS, float(one.settings.gbit_per_s)})
    here = one.model.workload.per_node
    made: list[dict[str, Any]] = []
    for rate in rates:
        name = f"{rate:g} Gbit/s between nodes of {here} device{'s' * (here > 1)}"
        times, chosen = _times(with_network(one, rate)), rate == one.settings.gbit_per_s
        made.append({"name": name, "times": times, "chosen": chosen})
    name = "as within this node, however many devices"
    return [*made, {"name": name, "times": _times(Forecast(within, one.settings))}]


def _times(one: Forecast) -> list[list[float]]:
    model = one.model
    assert isinstance(model, DataParallel)
    reduce = model.exchanges[Collective.ALL_REDUCE]
    return [[_short(middle(reduce.seconds(size, model.layout(count)))) for size in SIZES] for count in COUNTS]


def _workload(name: str, model: DataParallel) -> dict[str, Any]:
    size, calls = model.workload.volume
    local = model.workload.local
    draws = zip(*(part[:NUM_DRAWS] for part in model.overlap), strict=True)
    return {
        "name": name,
        "bytes": size,
        "calls": calls,
        "seconds": _short(middle(local.at(model.workload.batch))),
        "batch": model.workload.batch,
        "local": [[float(b), _short(middle(local.at(b)))] for b in local.sizes],
        "company": [_short(middle(model.workload.in_company(count))) for count in COUNTS],
        "slowest": [_short(middle(model.workload.ranks[model.scaling].slowest(count))) for count in COUNTS],
        "overlap": [[_short(value) for value in draw] for draw in draws],
    }


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
