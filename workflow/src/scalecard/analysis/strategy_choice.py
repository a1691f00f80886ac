"""Which strategy to use for a workload: what each reached, the best, the runner-up, and what to avoid.

Also where scaling collapses, and whether the best changes by another recipe. Strategies of one recipe were timed in the
same rounds. Those of two recipes were not, so that drift of the machine comes between them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from scalecard.analysis import by_key, formatting, step_records
from scalecard.progress import counted
from scalecard.records import strategies
from scalecard.records.axes import BASELINE
from scalecard.records.record import Reason, Record, Result
from scalecard.records.statistics import Ratio
from scalecard.records.strategies import OTHER_RECIPE, SINGLE, Family

FITS, TOO_LARGE, UNABLE, LOST, LATE = "fits", "does not fit", "cannot be used", "failed", "no time"
COLLAPSED = 0.5  # of a device's full rate
HALF = 2.0  # times as long as the one that is recommended: what is to be avoided


@dataclass(frozen=True)
class StrategyRun:
    """A strategy on a number of devices, and what became of it: `step` has its times, or says why there are none.

    `alone` is one device with the batch that it has by itself; None if that was not timed. `memory` of the fullest
    device is in bytes, `largest_batch` the most samples on each; 0 if not known.
    """

    step: Record
    alone: Record | None
    memory: float = 0.0
    largest_batch: float = 0.0

    @property
    def workload(self) -> str:
        return self.step.text("workload")

    @property
    def strategy(self) -> str:
        return self.step.text("strategy", "any other")  # of a launch that was lost as a whole

    @property
    def precision(self) -> str:
        """In which products are computed."""
        return self.step.text("precision", BASELINE)

    @property
    def recipe(self) -> tuple[str, str]:
        """The precision, and what is recomputed."""
        return self.precision, self.step.text("checkpointing", "none")

    @property
    def own(self) -> bool:
        """Whether that is the workload's own recipe."""
        return self.step.metric == "step_time"

    @property
    def devices(self) -> int:
        return self.step.integer("devices", 1)

    @property
    def nodes(self) -> int:
        return self.step.integer("nodes", 1)

    @property
    def scaling(self) -> str:
        """'strong': one device's batch for all; 'weak': as many samples for each."""
        return self.step.text("scaling", "")

    @property
    def fits(self) -> bool:
        return bool(self.step.samples)

    @property
    def status(self) -> str:
        if self.fits:
            return FITS
        if self.step.status == "skipped":
            return LATE if self.step.reason is Reason.NO_TIME else UNABLE
        return TOO_LARGE if self.step.reason is Reason.OUT_OF_MEMORY else LOST

    @property
    def rate(self) -> float:
        """Samples or tokens per second."""
        return step_records.rate(self.step)

    @property
    def unit(self) -> str:
        return str(self.step.case["unit"])

    @property
    def batch(self) -> int:
        """Samples of a step, of all devices together."""
        return self.step.integer("batch_size")

    @property
    def gain(self) -> Ratio | None:
        """The rate over one device's."""
        return step_records.gain_per_unit(self.step, self.alone) if self.alone and self.fits else None

    @property
    def is_slower(self) -> bool:
        """Whether it is surely slower than one device."""
        return bool(self.gain and self.gain.interval and self.gain.interval.high < 1)

    @property
    def efficiency(self) -> Ratio | None:
        """The rate over that of as many devices that each work as fast as one alone."""
        return self.gain and formatting.scaled(self.gain, 1 / self.devices)

    @property
    def where(self) -> str:
        """'DDP on 8 devices on 2 nodes', or 'one device'."""
        return "one device" if self.devices == 1 else f"{self.strategy} on {on(self.devices, self.nodes)}"

    def time_over(self, other: "StrategyRun") -> Ratio:
        """Time per sample or token, over another's."""
        return step_records.time_per_unit(self.step, other.step)

    def is_dominated_by(self, other: "StrategyRun") -> bool:
        """Whether that one is surely faster on as many devices, needs no more memory, and lets the batch grow as far.

        Where memory is not known, whether it is surely faster by the same recipe.
        """
        if self.memory and other.memory:
            known = self.largest_batch and other.largest_batch
            beaten = self.memory >= other.memory and not (known and self.largest_batch > other.largest_batch)
        else:
            beaten = self.recipe == other.recipe
        able = beaten and self.devices == other.devices and self.rate < other.rate
        return able and self.time_over(other).verdict == "slower"


def on(devices: int, nodes: int = 1) -> str:
    """'8 devices', '1 device' or '8 devices on 2 nodes'."""
    return counted(devices, "device") + (f" on {nodes} nodes" if nodes > 1 else "")


def workloads(result: Result) -> list[str]:
    """All that were tried, in the order of config.yaml."""
    return list(dict.fromkeys(record.text("workload") for record in result.records if "workload" in record.case))


def recipe(result: Result, workload: str) -> Mapping[str, Any]:
    """Its recipe as config.yaml has it; older results had none."""
    return dict(result.spec.get("workloads", {}).get(workload, {}).get("recipe", {}))


def precision(result: Result, workload: str) -> str:
    """In which it was trained: where the recipe leaves it to the device, only the records by that recipe tell."""
    own = (r for r in result.records if r.metric not in OTHER_RECIPE.values() and r.matches(workload=workload))
    return next((record.text("precision") for record in own if "precision" in record.case), BASELINE)


@lru_cache(maxsize=16)
def strategy_runs(result: Result, workload: str) -> list[StrategyRun]:
    """Everything that was tried for a workload by its own recipe."""
    return _runs(result, workload, "step_time")


def _runs(result: Result, workload: str, metric: str) -> list[StrategyRun]:
    alone, found = step_records.single(result, workload), list[StrategyRun]()
    for step in (record for record in result.records if record.metric == metric and record.matches(workload=workload)):
        peak, most = step_records.memory(result, step), step_records.largest_batch(result, step)
        found.append(StrategyRun(step, alone, peak.median if peak else 0.0, most.median if most else 0.0))
    return found


@lru_cache(maxsize=4)
def ddp_runs(result: Result) -> list[StrategyRun]:
    """DDP's scaling in `ddp`, over one device that trains without DDP, as it does in `strategies`."""
    steps = step_records.scaling_of_ddp(result)
    alone = {
        step.case.get("workload"): step
        for step in steps
        if step.status == "ok" and step.case["strategy"] == SINGLE.name
    }
    return [StrategyRun(step, alone.get(step.case.get("workload"))) for step in steps]


def recipe_runs(result: Result, workload: str) -> list[StrategyRun]:
    """Those on the most devices first, and of them the fastest; empty if it was trained by no recipe but its own.

    Of its own what was also measured by the others: on one device and on all of a node, by ranks, at their scaling.
    """
    others = [run for run in _runs(result, workload, OTHER_RECIPE["step_time"]) if run.fits]
    places = {(run.devices, run.scaling) for run in others}
    own = [
        run
        for run in strategy_runs(result, workload)
        if run.fits
        and run.nodes == 1
        and (run.devices, run.scaling) in places
        and (run.devices == 1 or strategies.of(run.strategy).on_ranks)
    ]
    return sorted((*own, *others) if own else (), key=lambda run: (-run.devices, -run.rate))


def timed(found: Sequence[StrategyRun], scaling: str) -> list[StrategyRun]:
    """Those with times, one device among them, of which both scalings are the same."""
    return [run for run in found if run.fits and (run.scaling == scaling or run.devices == 1)]


def not_compared(found: Sequence[StrategyRun]) -> list[StrategyRun]:
    """What divides the batch over several devices and failed, though it had room, or was lost with all of a launch."""
    lost = [run for run in found if run.devices > 1 and run.status == LOST]
    data = {kind.name for kind in strategies.ALL if kind.family is Family.DATA}
    return [run for run in lost if "strategy" not in run.step.case or run.strategy in data]


def fewest(found: Sequence[StrategyRun]) -> list[StrategyRun]:
    """Those on the smallest number of devices that hold one device's batch; empty if none does."""
    able = timed(found, "strong") or timed(found, "weak")
    return [run for run in able if run.devices == min(each.devices for each in able)]


@dataclass(frozen=True)
class Point:
    """So many samples on each device, and the share of its full rate at which each then works."""

    batch: float
    share: Ratio
    what: str

    @property
    def collapsed(self) -> bool:
        """Surely below half."""
        return self.share.interval is not None and self.share.interval.high < COLLAPSED

    @property
    def holds(self) -> bool:
        """Surely at or above half."""
        return self.share.interval is not None and self.share.interval.low >= COLLAPSED


@dataclass(frozen=True)
class Batches:
    """What was measured of a workload by the samples on each device, most samples first."""

    shared: list[Point]
    alone: list[Point]

    @property
    def collapse(self) -> Point | None:
        """Where scaling has collapsed, at the most samples per device."""
        collapsed = [point for point in (*self.shared, *self.alone) if point.collapsed]
        return max(collapsed, key=lambda point: point.batch, default=None)

    @property
    def least(self) -> Point | None:
        """The fewest samples per device on several devices above any collapse."""
        below = self.collapse.batch if self.collapse else 0.0
        able = [point for point in self.shared if point.holds and point.batch > below]
        return min(able, key=lambda point: point.batch, default=None)


def batches(result: Result, workload: str, found: Sequence[StrategyRun]) -> Batches:
    """Of the fastest data parallelism on each number of devices, and of one device alone."""
    able = [run for run in timed(found, "strong") if strategies.of(run.strategy).family is Family.DATA]
    by_place = by_key(((run.devices, run.nodes), run) for run in able if run.efficiency)
    fastest = [max(own, key=lambda run: run.rate) for own in by_place.values()]
    shared = [Point(run.batch / run.devices, run.efficiency, run.where) for run in fastest if run.efficiency]
    return Batches(*(sorted(points, key=lambda point: -point.batch) for points in (shared, _alone(result, workload))))


def _alone(result: Result, workload: str) -> list[Point]:
    """The rate with fewer samples over the rate with all of them, in the same rounds."""
    whole = step_records.single(result, workload)
    if not whole:
        return []
    return [
        Point(record.integer("batch_size"), step_records.gain_per_unit(record, whole), "one device alone")
        for record in result.select("local_time", workload=workload)
        if record.case["batch_size"] != whole.case["batch_size"]
    ]


@dataclass(frozen=True)
class Choice:
    """`best` is what to use; `others` follow, the highest rate first, each with its time per sample over the best's."""

    best: StrategyRun
    others: list[tuple[StrategyRun, Ratio]]

    @property
    def tied(self) -> list[StrategyRun]:
        """Those that cannot be told apart from the best one, or take the same time."""
        return [run for run, ratio in self.others if ratio.verdict != "slower"]

    def flips(self, own: "Choice") -> bool:
        """Whether the best of each of two recipes is surely slower than the other one's by the other's recipe."""
        return self.beats(own.best) and own.beats(self.best)

    def beats(self, run: StrategyRun) -> bool:
        """Whether that strategy is surely slower than the best here."""
        return any(one.strategy == run.strategy and ratio.verdict == "slower" for one, ratio in self.others)


def choose(found: Sequence[StrategyRun], scaling: str) -> Choice | None:
    """The highest rate at a scaling; of those within 1 % of it, the one on the fewest devices. None if none was timed.

    Several devices must surely be faster than one, or that one will do. Between several, only what surely takes the
    same time gives way to fewer devices: what merely cannot be told apart does not.
    """
    able = sorted(timed(found, scaling), key=lambda run: -run.rate)
    if not able:
        return None
    beside = [(run, "same" if run is able[0] else run.time_over(able[0]).verdict) for run in able]
    same = [run for run, verdict in beside if verdict == "same" or (run.devices == 1 and verdict != "slower")]
    best = min(same, key=lambda run: (run.devices, -run.rate))
    others = [(run, run.time_over(best)) for run in able if run is not best]
    return Choice(best, others)


def best_by_recipe(found: Sequence[StrategyRun]) -> Iterator[Choice]:
    """Among `recipe_runs` on the most devices: the workload's own recipe first, then the others by their fastest."""
    most = [run for run in found if run.devices == found[0].devices]
    most.sort(key=lambda run: not run.own)
    for own in by_key((run.recipe, run) for run in most).values():
        if choice := choose(own, own[0].scaling):
            yield choice


def avoid(found: Sequence[StrategyRun]) -> list[tuple[StrategyRun, str]]:
    """On the most devices, with one device's batch, what surely loses time, and why; the slowest first."""
    choice = choose(on_most(found), "strong")
    if choice is None:
        return []
    lost = []
    for run, ratio in reversed(choice.others):
        if run.is_slower:
            lost.append((run, "slower than one device"))
        elif ratio.interval and ratio.interval.low > HALF:
            lost.append((run, f"less than half as fast as {choice.best.strategy}"))
    return lost


def on_most(found: Sequence[StrategyRun]) -> list[StrategyRun]:
    """Those with one device's batch on the most devices; empty if these are not several."""
    several = [run for run in timed(found, "strong") if run.devices > 1]
    return [run for run in several if run.devices == max(each.devices for each in several)]
