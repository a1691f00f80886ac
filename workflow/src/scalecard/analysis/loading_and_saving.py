"""What loading data and saving checkpoints cost.

Of loading, `input` measured loaders over workers, steps, and what was compared with them. Of saving, `strategies` has
the seconds that training loses by each way to save a checkpoint, and how long loading it takes. While training stands
still, they are the time to save; beside training, how much longer the same steps take.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scalecard.analysis import formatting
from scalecard.analysis.step_records import error_of_difference
from scalecard.analysis.strategy_choice import workloads
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Interval, Ratio

HALF_AN_HOUR = 1800.0
AXES = ("prefetch", "persistent", "memory", "batch_size")  # of a loader alone, besides its workers


@dataclass(frozen=True)
class LoaderResults:
    """One workload: a step on resident data beside loaders over workers; then settings, and steps that are fed."""

    result: Result
    name: str

    def resident(self, part: str = "workers") -> Record | None:
        """A step on data that are on the device, from the rounds of this part: `workers` or `settings`."""
        return self.result.find("step_time", workload=self.name, part=part, data="resident")

    @property
    def loaders(self) -> list[Record]:
        """Alone, by the number of workers."""
        return sorted(self.result.select("load_time", workload=self.name, part="workers"), key=workers)

    @property
    def fastest(self) -> Record:
        """The loader that makes the most."""
        return min(self.loaders, key=lambda record: record.median)

    @property
    def steps(self) -> list[Record]:
        """Those that a loader feeds."""
        return self.result.select("step_time", workload=self.name, part="settings", data="fed")

    @property
    def settings(self) -> list[Record]:
        """Of a loader alone, all with as many workers; the usual ones first."""
        return self.result.select("load_time", workload=self.name, part="settings")

    @property
    def devices_fed(self) -> Ratio:
        """How many devices the fastest loader feeds: a step's time on resident data over that of loading its batch."""
        resident = self.resident()
        assert resident, "workloads without one are left out"
        return formatting.speedup(self.fastest, resident)

    @property
    def enough(self) -> int | None:
        """The fewest workers with which a step takes no longer (by 1 %) than on resident data, surely; or None.

        Of workers that feed no step that was timed, a batch must take no longer than a step.
        """
        resident = self.resident("settings")
        waiting = {workers(step): step.over(resident).verdict if resident else "unclear" for step in self.steps}
        if waiting.get(0) in ("faster", "same"):
            return 0
        several = (r for r in self.usual if workers(r) and self.keeps_up(r))
        return min((workers(r) for r in several if waiting.get(workers(r)) != "slower"), default=None)

    @property
    def usual(self) -> list[Record]:
        """The loaders with the usual settings, alone."""
        return [*self.loaders, *self.settings[:1]]

    def keeps_up(self, loader: Record) -> bool:
        """Whether a batch is surely loaded in the time of a step."""
        resident = self.resident(loader.text("part"))
        return resident is not None and loader.over(resident).verdict in ("faster", "same")


def loader_results(result: Result) -> list[LoaderResults]:
    """The workloads of which there are a step on resident data and a loader."""
    every = (LoaderResults(result, name) for name in workloads(result))
    return [one for one in every if one.resident() and one.loaders]


def workers(record: Record) -> int:
    """The loader's processes; 0: the training's own reads."""
    return record.integer("workers")


def changed(record: Record, usual: Record) -> str:
    """The setting in which two loaders differ."""
    return next(axis for axis in AXES if record.case.get(axis) != usual.case.get(axis))


@dataclass(frozen=True)
class Cost:
    """Seconds `lost` by one way of saving, with their 95 % interval; `size` in bytes.

    `record` has them, or what is slower by them; `slower` is how many times as long as usual steps take meanwhile, and
    None of what they wait for.
    """

    record: Record
    lost: float
    interval: Interval | None
    size: float
    restore: Record | None = None
    slower: Ratio | None = None

    @property
    def workload(self) -> str:
        return self.record.text("workload")

    @property
    def way(self) -> str:
        return self.record.text("saving")

    @property
    def sure(self) -> bool:
        """Whether it surely costs time."""
        return self.lost > 0 and not (self.interval and self.interval.low <= 0)

    @property
    def at_most(self) -> float:
        """Seconds that it costs with its error."""
        return self.interval.high if self.interval else self.lost

    @property
    def every_half_hour(self) -> float:
        """The share of the time that it costs to save as often as that; at most, unless it surely costs some."""
        lost = max(0.0, self.lost if self.sure else self.at_most)
        return lost / (HALF_AN_HOUR + lost)


def costs(result: Result) -> list[Cost]:
    """Every way of every workload on the most devices: first those for which training stands still."""
    found = []
    for record in formatting.largest(result.select("save_time"), "devices"):
        restore = result.find("restore_time", **record.case)
        found.append(Cost(record, record.median, record.interval, _size(result, record), restore))
    for record in formatting.largest(result.select("steps_time", saving="asynchronous"), "devices"):
        if usual := result.find("steps_time", **{**record.case, "saving": "none"}):
            lost, error = record.median - usual.median, error_of_difference(record, usual)
            bounds = None if error is None else Interval(lost - error, lost + error)
            found.append(Cost(record, lost, bounds, _size(result, record), slower=record.over(usual)))
    return found


def cheapest(found: Sequence[Cost], workload: str) -> Cost | None:
    """The one that loses the least time, with its error."""
    return min((each for each in found if each.workload == workload), key=lambda each: each.at_most, default=None)


def _size(result: Result, record: Record) -> float:
    same = {axis: record.case.get(axis) for axis in ("workload", "devices", "saving")}
    found = result.find("checkpoint_size", **same)
    return found.median if found else 0.0
