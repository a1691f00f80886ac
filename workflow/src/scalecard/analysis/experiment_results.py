"""Results of single experiments, as several readers need them: steps, loaders, ladders of tuning, unequal devices.

Of `input` a workload's loaders over workers, its steps, and what was compared with them. Of `tuning` the ladder of one
workload on one number of devices, rungs alone and on others; a gain says how many times as many samples or tokens per
second a step trains as the plain float32 step of its ladder. Of `heterogeneous` the records of a minibatch that unequal
devices share.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from scalecard.analysis import formatting
from scalecard.records.axes import BASELINE, RUNGS, Case, rungs_of
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Ratio
from scalecard.records.strategies import SINGLE

APART = ("default", "no_sync", "all-reduce alone")  # these take DDP's step apart; they are not options
AXES = ("prefetch", "persistent", "memory", "batch_size")  # of a loader alone, besides its workers
DTYPES = {"bf16": "bfloat16", "tf32": "tf32"}  # of products, as the reference of peaks names them


def place(step: Record) -> Case:
    """The axes of a step, for what was measured beside it; of one node, nothing that was measured on several."""
    return {"nodes": None, **step.case}


def single(result: Result, workload: str) -> Record | None:
    """One device alone."""
    return result.find("step_time", workload=workload, strategy=SINGLE.name)


def counted(record: Record, name: str) -> float | None:
    """What one call was counted to do."""
    return next((count.counted for count in record.work if count.name == name), None)


def operations_each(alone: Record | None) -> float:
    """The operations of one device's plain step per sample or token; 0 if they were not counted."""
    flops = alone and counted(alone, "FLOPs")
    return flops / alone.integer("units") if alone and flops else 0.0


def options_of(result: Result, model: str, nodes: int | None) -> dict[str, Record]:
    """A step with each option of DDP, by its name, and what takes the step apart."""
    records = result.select("step_time", workload=model, nodes=nodes)
    return {record.text("option"): record for record in records if "option" in record.case}


def per_batch(record: Record, default: Record) -> Ratio:
    """An option's time over the default's; accumulating ones take a step every so many batches."""
    return formatting.scaled(record.over(default), 1 / record.integer("steps", 1))


def rate(record: Record) -> float:
    """Samples or tokens per second."""
    return record.integer("units") / record.median


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
    names = dict.fromkeys(record.text("workload") for record in result.records if "workload" in record.case)
    return [one for one in (LoaderResults(result, name) for name in names) if one.resident() and one.loaders]


def workers(record: Record) -> int:
    """The loader's processes; 0: the training's own reads."""
    return record.integer("workers")


def per_unit(record: Record, usual: Record) -> Ratio:
    """The time of a sample with one loader over that with another, whatever their batches."""
    return formatting.scaled(record.over(usual), usual.integer("units") / record.integer("units"))


def changed(record: Record, usual: Record) -> str:
    """The setting in which two loaders differ."""
    return next(axis for axis in AXES if record.case.get(axis) != usual.case.get(axis))


def is_larger(record: Record) -> bool:
    """Whether its step trains more samples than the plain one."""
    return not record.matches(accumulate=None, batch_factor=None)


def dtype_of(record: Record) -> str:
    """In which products and convolutions are computed."""
    return next((dtype for rung, dtype in DTYPES.items() if rung in record.case), BASELINE)


@dataclass(frozen=True)
class Ladder:
    """The measured steps of one workload on so many devices, the plain one first."""

    workload: str
    devices: int
    base: Record
    records: tuple[Record, ...]

    def gain(self, record: Record) -> Ratio:
        """How many times as fast as the plain step, per sample or token."""
        more = record.integer("units") / self.base.integer("units")
        return formatting.scaled(formatting.speedup(record, self.base), more)

    def find(self, rungs: tuple[str, ...]) -> Record | None:
        """The step with exactly these rungs, at the plain step's batch."""
        usual = (record for record in (self.base, *self.records) if not is_larger(record))
        return next((record for record in usual if rungs_of(record.case) == rungs), None)

    @cached_property
    def alone(self) -> list[Record]:
        """The steps with one rung, at the plain step's batch."""
        return [r for r in self.records if len(rungs_of(r.case)) == 1 and not is_larger(r)]

    @cached_property
    def cumulative(self) -> list[Record]:
        """The first rung that worked, then each on those before it."""
        above = [r for r in self.records if len(rungs_of(r.case)) > 1 and not is_larger(r)]
        first = self.find(rungs_of(above[0].case)[:1]) if above else None
        return [*([first] if first else self.alone[:1]), *above]

    @cached_property
    def larger(self) -> list[Record]:
        """More batches per update, and larger batches."""
        return [record for record in self.records if is_larger(record)]

    def best(self, among: Callable[[Record], bool] = lambda record: not is_larger(record)) -> Record:
        """The fastest per sample or token; the plain step if none is faster."""
        return max(filter(among, [self.base, *self.records]), key=rate)


def ladders(result: Result) -> Iterator[Ladder]:
    """One of each workload and number of devices whose plain step was measured."""
    for base in result.select("step_time", accumulate=None, batch_factor=None, **dict.fromkeys(RUNGS)):
        workload, devices = base.text("workload"), base.integer("devices")
        others = tuple(r for r in result.select("step_time", workload=workload, devices=devices) if r is not base)
        yield Ladder(workload, devices, base, others)


@dataclass(frozen=True)
class Division:
    """A model on a pair of devices: the devices' names, each one's times alone, and both together by the first's share.

    `alone` is the faster device in the rounds of those together; `predicted` is a share of the minibatch, and
    `predicted_time` its seconds.
    """

    names: tuple[str, str]
    batch_size: int
    slowed: int
    curves: list[list[Record]]
    together: list[Record]
    alone: Record
    emulated: bool
    predicted: float
    predicted_time: float

    @property
    def faster(self) -> int:
        """Which of the devices `alone` is."""
        return 0 if share_of(self.alone) == self.batch_size else 1

    @property
    def nearest(self) -> Record:
        """The one together that is nearest to the prediction, or the faster device alone if the other gets nothing."""
        goal = self.predicted * self.batch_size
        return min([self.alone, *self.together], key=lambda record: abs(share_of(record) - goal))

    def shares(self, record: Record) -> str:
        """'54 samples on GPU 0 and 10 on CPU'."""
        first = share_of(record)
        return f"{first} samples on {self.names[0]} and {self.batch_size - first} on {self.names[1]}"


def share_of(record: Record) -> int:
    """The samples on the first device or, of a device alone, its own."""
    return record.integer("share")


def divisions(result: Result) -> list[Division]:
    """Every model on every pair of devices of which anything together was measured."""
    of_all = result.select("predicted_share")
    return [found for predicted in of_all if (found := _division(result, predicted)) is not None]


def _division(result: Result, predicted: Record) -> Division | None:
    case: Case = {key: predicted.case[key] for key in ("workload", "pairing", "batch_size", "slowed")}
    alone = result.select("step_time", part="alone", **case)
    names = list(dict.fromkeys(record.text("place") for record in alone))
    whole = predicted.integer("batch_size")
    timed = result.select("step_time", part="together", **case)
    seconds = result.find("predicted_time", **predicted.case)
    base = next((record for record in timed if record.case["share"] in (0, whole)), None)
    together = sorted((record for record in timed if record is not base), key=share_of)
    if len(names) < 2 or not (seconds and base and together):
        return None
    first, second = names
    return Division(
        names=(first, second),
        batch_size=whole,
        slowed=predicted.integer("slowed"),
        curves=[sorted((r for r in alone if r.case["place"] == name), key=share_of) for name in names],
        together=together,
        alone=base,
        emulated=result.emulated,
        predicted=predicted.median,
        predicted_time=seconds.median,
    )


def over_in_rounds(new: Record, old: Record) -> Ratio:
    """new / old by the rounds that both were timed in, if there are any: processes may predict different shares."""
    both = {entry.rounds_id for entry in new.telemetry} & {entry.rounds_id for entry in old.telemetry}
    return _of_rounds(new, both).over(_of_rounds(old, both)) if both else new.over(old)


def _of_rounds(record: Record, chosen: set[str]) -> Record:
    pairs = zip(record.samples, record.telemetry, strict=True)
    kept = [(samples, entry) for samples, entry in pairs if entry.rounds_id in chosen]
    return replace(record, samples=[samples for samples, _ in kept], telemetry=[entry for _, entry in kept])
