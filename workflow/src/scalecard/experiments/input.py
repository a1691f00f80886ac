"""Does a DataLoader keep up with training, how many workers does it take, and which of its settings matter?

The data set of each workload of config.yaml is loaded by more and more worker processes, beside a step of training on
data that is on the device already. From this follows the number of workers that feeds one device. With it the settings
of the loader are compared, and steps that it feeds with steps on resident data.

The answer would be wrong if a loader yielded something else (every sample of a pass is compared with the data set
itself), if fewer were loaded or trained on than counted (samples and updates are counted), if what was loaded while
others took their turn counted as loaded in no time (a pass of a loader alone begins with nothing), or if starting the
workers were timed as loading (they live as long as the rounds, but where a new start is what is measured).
"""

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from pydantic import Field

from scalecard import progress
from scalecard.benchmarks.training.input_loading import COPIES, Feeding, FromDataset, Pass, samples_of
from scalecard.benchmarks.training.strategy import CHECKED_EACH, References
from scalecard.benchmarks.training.validate import OfWorkloads, Workloads, examined
from scalecard.hardware import host
from scalecard.hardware.devices import copy_engine, open_devices
from scalecard.hardware.failures import in_one_line, reason_of
from scalecard.hardware.machine import Machine, device_counts
from scalecard.measuring import shared_decisions
from scalecard.measuring.case_variant import Subject, Timing, Variant
from scalecard.measuring.interleaved_timing import time_rounds
from scalecard.measuring.prepare import guarded
from scalecard.measuring.spec import AtLeastTwo, Common, Positive, Several, Sweep
from scalecard.measuring.stopping_rule import in_equal_parts
from scalecard.records.axes import Case
from scalecard.records.record import Reason, Record
from scalecard.workloads.loading import Loading
from scalecard.workloads.workload import Workload

LOST = "DataLoader worker"  # in PyTorch's words for one that was killed, of too little shared memory for example
LONGER = 4  # times as many batches as are loaded ahead has a pass that is fed


@dataclass(frozen=True, kw_only=True)
class Spec(OfWorkloads, Common):
    workloads: Workloads
    workers: Several[Annotated[int, Field(ge=0, le=1000)]] | None
    prefetch: Several[Annotated[int, Field(ge=1, le=100)]]
    batch_sizes: Sweep
    batches: AtLeastTwo
    samples: Positive
    check_steps: Positive


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Every workload that has a data set, on one device; one that fails, fails alone."""
    for workload in in_equal_parts(spec.loads, label=lambda workload: f"input of {workload.name}"):
        case: Case = {"workload": workload.name, "devices": 1}
        try:
            yield from guarded(_of_workload(spec, machine, workload, case), case, metric="load_time")
        except Exception as error:  # of a file of the user's, or of a worker that was killed
            reason = Reason.LOST if LOST in str(error) else reason_of(error)
            yield Record.failed(case, in_one_line(error), reason=reason, metric="load_time")


def _of_workload(spec: Spec, machine: Machine, workload: Workload, case: Case) -> Iterator[Record]:
    dataset = samples_of(workload.name, workload.file, workload.values, workload.seed)
    if dataset is None:
        yield Record.skipped(case, "the workload has no dataset()", metric="load_time")
        return
    places = min(len(dataset), max(spec.samples, workload.batch_size, *spec.batch_sizes))
    if places < workload.batch_size:
        few = f"its data set has {places} samples, fewer than a batch of {workload.batch_size}"
        yield Record.skipped(case, few, metric="load_time")
        return
    own = FromDataset(**vars(workload), places=places)
    with open_devices(machine, 1) as (device,):
        own = examined(own, device.torch, spec.check_steps, 1)
        copier = copy_engine([device])
        feeding = Feeding(device, References(device.torch, spec.check_steps), copier)
        with closing(copier) if copier else nullcontext(), closing(feeding):
            yield from _Workload(spec, feeding, own, case).records()


def _per_batch(timing: Timing) -> Record:
    """A record has the time of one batch; a loop that waits for a loader says nothing of launching."""
    many = timing.variant.timed_at.num_batches
    made = timing.record("step_time" if "data" in timing.variant.case else "load_time")
    return replace(
        made,
        samples=[[seconds / many for seconds in samples] for samples in made.samples],
        work=[replace(c, counted=c.counted / many, expected=c.expected / many) for c in made.work],
        telemetry=[replace(entry, iterations=entry.iterations * many, enqueue=None) for entry in made.telemetry],
    )


@dataclass(frozen=True)
class _Workload:
    """The loaders of one workload, and what they feed."""

    spec: Spec
    feeding: Feeding
    workload: FromDataset
    case: Case

    def records(self) -> Iterator[Record]:
        """Over workers; then, with as many as it takes to feed a device, over all else."""
        counts = self.spec.workers or (0, *device_counts(host.usable_cores()))
        progress.doing(f"{self.workload.name}: loaders of {', '.join(map(str, counts))} workers")
        first = [self._resident("workers"), *(self._alone("workers", self._usual(n)) for n in sorted(counts))]
        resident, *loaders = yield from self._timed(first)
        alone = {r.integer("workers"): r.median for r in loaders if r.samples}
        if not (resident.samples and alone):
            return
        needed = shared_decisions.decided(f"input-{self.workload.name}", partial(workers_for, alone, resident.median))
        progress.doing(f"{self.workload.name}: settings, with {progress.counted(needed, 'worker')}")
        yield from self._timed([self._resident("settings"), *self._fed(needed), *self._settings(needed)])
        if not self._on_gpu:
            for axes, metric in (({"memory": "pinned"}, "load_time"), ({"copy": "overlapped"}, "step_time")):
                case: Case = {**self.case, "part": "settings", **axes}
                yield Record.skipped(case, "pinned memory and copies to a device need a GPU", metric=metric)

    def _timed(self, variants: Sequence[Variant]) -> Generator[Record, None, list[Record]]:
        """Their records, in the same rounds; meanwhile their workers live."""
        timings = time_rounds(variants, devices=[self.feeding.device], rule=self.spec.measure)
        self.feeding.close()
        records = [_per_batch(timing) for timing in timings]
        yield from records
        return records

    def _fed(self, workers: int) -> Iterator[Variant]:
        """By the training's own process, as PyTorch does unless told otherwise, and by the workers."""
        for count in dict.fromkeys((0, workers)):
            for copy in (COPIES if count == workers else COPIES[1:2]) if self._on_gpu else ("",):
                loading = replace(self._usual(count), pinned=copy in COPIES[1:])
                ahead = LONGER * loading.workers * loading.prefetch
                axes: Case = {"data": "fed", "workers": count, **({"copy": copy} if copy else {})}
                build = partial(self.feeding.fed, loading, copy)
                yield self._step("settings", f"fed by {count} {copy}", build, ahead, axes)

    def _settings(self, needed: int) -> Iterator[Variant]:
        """One setting after another in place of the usual one, where there are workers."""
        if not needed:
            return
        usual = self._usual(needed)
        others = [replace(usual, prefetch=ahead) for ahead in self.spec.prefetch[1:]]
        others += [replace(usual, persistent=False), *([replace(usual, pinned=False)] if self._on_gpu else [])]
        yield from (self._alone("settings", loading) for loading in (usual, *others))
        for size in self.spec.batch_sizes:
            if size != self.workload.batch_size and size <= self.workload.places:
                yield self._alone("settings", usual, size)

    @property
    def _on_gpu(self) -> bool:
        return self.feeding.device.torch.type != "cpu"

    def _usual(self, workers: int) -> Loading:
        return Loading(workers=workers, prefetch=self.spec.prefetch[0], pinned=self._on_gpu)

    def _alone(self, part: str, loading: Loading, batch_size: int = 0) -> Variant:
        at = Pass(
            replace(self.workload, batch_size=batch_size or self.workload.batch_size),
            self.spec.batches * max(1, loading.workers),
        )
        axes: Case = {"workers": loading.workers, "memory": "pinned" if loading.pinned else "pageable"}
        if loading.workers:
            axes |= {"prefetch": loading.prefetch, "persistent": loading.persistent}
        name, build = f"{loading}, batches of {at.workload.batch_size}", partial(self.feeding.alone, loading)
        return Variant(name=name, case=self._case(part, at, axes), build=build, timed_at=at)

    def _resident(self, part: str) -> Variant:
        return self._step(part, "resident data", self.feeding.resident, 0, {"data": "resident"})

    def _step(self, part: str, name: str, build: Callable[[Pass], Subject], ahead: int, axes: Case) -> Variant:
        at = Pass(replace(self.workload, each=self.workload.batch_size), max(self.spec.batches, ahead))
        small = Pass(replace(self.workload, batch_size=CHECKED_EACH, exact=True), self.spec.check_steps)
        exact = [] if self.workload.inexact else [small]
        case = self._case(part, at, {**axes, **self.workload.recipe_axes})
        return Variant(name=name, case=case, build=build, proven_at=exact, timed_at=at)

    def _case(self, part: str, at: Pass, axes: Case) -> Case:
        size, unit, units = at.workload.batch_size, at.workload.unit, at.workload.units(at.workload.batch_size)
        amount: Case = {"batch_size": size, "unit": unit, "units": units, "batches": at.num_batches}
        return {**self.case, "part": part, **axes, **amount}


def workers_for(seconds: Mapping[int, float], wanted: float) -> int:
    """The fewest workers that make a batch in the time wanted, from the seconds per batch of some numbers of them.

    Between two numbers the rate is taken to grow in a straight line. If none is fast enough, the fastest. Without
    workers (0) the training's own process reads, which also launches steps: only a fed step tells if that is enough.
    """
    before, processes = (0, 0.0), {workers: each for workers, each in seconds.items() if workers}
    for workers, rate in sorted((workers, 1 / each) for workers, each in processes.items()):
        if rate * wanted >= 1:
            missing = (1 / wanted - before[1]) / (rate - before[1])
            return math.ceil(before[0] + missing * (workers - before[0]))
        before = workers, rate
    return min(processes, key=lambda workers: processes[workers], default=0)
