"""What `input` measured of a workload: loaders over workers, steps, and what was compared with them."""

from dataclasses import dataclass

from scalecard.analysis import formatting
from scalecard.analysis.strategy_choice import workloads
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Ratio

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
