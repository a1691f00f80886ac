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
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.failures import guarded
from scalecard.measuring.interleaved_timing import time_rounds
from scalecard.measuring.spec import Common, EachOnce, Positive, Several, Sweep
from scalecard.measuring.timing import Timing
from scalecard.records.record import Case, Reason, Record, Scalar
from scalecard.workloads.loading import Loading
from scalecard.workloads.workload import Workload

NO_DATASET = "the workload has no dataset()"
NO_PINNING = "pinned memory and copies to a device need a GPU"
LOST = "DataLoader worker"  # in PyTorch's words for one that was killed, of too little shared memory for example
LONGER = 4  # times as many batches as are loaded ahead has a pass that is fed

Workers = Annotated[int, Field(ge=0, le=1000)]


@dataclass(frozen=True, kw_only=True)
class Spec(OfWorkloads, Common):
    workloads: Workloads
    workers: Annotated[tuple[Workers, ...], Several, EachOnce] | None
    prefetch: Annotated[tuple[Annotated[int, Field(ge=1, le=100)], ...], Several, EachOnce]
    batch_sizes: Sweep
    batches: Annotated[int, Field(ge=2, le=1000)]
    samples: Positive
    check_steps: Positive


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Every workload that has a data set, on one device; one that fails, fails alone."""
    for workload in progress.cases(spec.loads, label=lambda workload: workload.name):
        case: Case = {"workload": workload.name, "devices": 1}
        records = guarded(_of_workload(spec, machine, workload, case), case, metric="load_time")
        try:
            yield from records
        except Exception as error:  # of a file of the user's, or of a worker that was killed
            reason = Reason.LOST if LOST in str(error) else reason_of(error)
            yield Record.failed(case, in_one_line(error), reason=reason, metric="load_time")


def _of_workload(spec: Spec, machine: Machine, workload: Workload, case: Case) -> Iterator[Record]:
    dataset = samples_of(workload.name, workload.file, workload.values, workload.seed)
    if dataset is None:
        yield Record.skipped(case, NO_DATASET, metric="load_time")
        return
    places = min(len(dataset), max(spec.samples, workload.batch_size, *spec.batch_sizes))
    if places < workload.batch_size:
        few = f"its data set has {places} samples, fewer than a batch of {workload.batch_size}"
        yield Record.skipped(case, few, metric="load_time")
        return
    own = FromDataset(workload.name, workload.file, workload.values, workload.batch_size, workload.seed, places=places)
    with open_devices(machine, 1) as (device,):
        own = examined(own, device.torch, spec.check_steps, 1)
        copier = copy_engine([device])
        feeding = Feeding(device, References(device.torch, spec.check_steps), copier)
        try:
            yield from _Workload(spec, feeding, own, case).records()
        finally:
            feeding.close()
            if copier:
                copier.close()


@dataclass(frozen=True)
class _Timed:
    """A variant, its metric, and the batches of a pass: a record has the time of each."""

    variant: Variant
    metric: str
    num_batches: int

    def record(self, timing: Timing) -> Record:
        """Per batch; a loop that waits for a loader says nothing of launching."""
        made, many = timing.record(self.metric), self.num_batches
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
        first = [self._resident("workers"), *(self._alone("workers", self._usual(n)) for n in sorted(counts))]
        resident, *loaders = yield from self._times(first)
        alone = {r.integer("workers"): r.median for r in loaders if r.samples}
        if not (resident.samples and alone):
            return
        needed = shared_decisions.decided(f"input-{self.workload.name}", partial(workers_for, alone, resident.median))
        progress.doing(f"{self.workload.name}: settings, with {progress.counted(needed, 'worker')}")
        yield from self._times([self._resident("settings"), *self._fed(needed), *self._settings(needed)])
        if not self._on_gpu:
            for axes in ({"memory": "pinned"}, {"copy": "overlapped"}):
                metric = "load_time" if "memory" in axes else "step_time"
                yield Record.skipped({**self.case, "part": "settings", **axes}, NO_PINNING, metric=metric)

    def _times(self, timed: Sequence[_Timed]) -> Generator[Record, None, list[Record]]:
        """Their records, in the same rounds; meanwhile their workers live."""
        timings = time_rounds([one.variant for one in timed], devices=[self.feeding.device], rule=self.spec.measure)
        self.feeding.close()
        records = [one.record(timing) for one, timing in zip(timed, timings, strict=True)]
        yield from records
        return records

    def _fed(self, workers: int) -> Iterator[_Timed]:
        """By the training's own process, as PyTorch does unless told otherwise, and by the workers."""
        for count in dict.fromkeys((0, workers)):
            usual = self._usual(count)
            for copy in (COPIES if count == workers else COPIES[1:2]) if self._on_gpu else ("",):
                loading = replace(usual, pinned=copy in COPIES[1:])
                ahead = LONGER * loading.workers * loading.prefetch
                yield self._step(
                    "settings",
                    f"fed by {count} {copy}",
                    partial(self.feeding.fed, loading, copy),
                    ahead,
                    data="fed",
                    workers=count,
                    **({"copy": copy} if copy else {}),
                )

    def _settings(self, needed: int) -> Iterator[_Timed]:
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

    def _alone(self, part: str, loading: Loading, batch_size: int = 0) -> _Timed:
        workload = replace(self.workload, batch_size=batch_size or self.workload.batch_size)
        num_batches = self.spec.batches * max(1, loading.workers)
        axes: Case = {"workers": loading.workers, "memory": "pinned" if loading.pinned else "pageable"}
        if loading.workers:
            axes |= {"prefetch": loading.prefetch, "persistent": loading.persistent}
        variant = Variant(
            name=f"{loading}, batches of {workload.batch_size}",
            case=self._case(part, workload, num_batches, axes),
            build=partial(self.feeding.alone, loading),
            timed_at=Pass(workload, num_batches),
        )
        return _Timed(variant, "load_time", num_batches)

    def _resident(self, part: str) -> _Timed:
        return self._step(part, "resident data", self.feeding.resident, 0, data="resident")

    def _step(self, part: str, name: str, build: Callable[[Pass], Subject], ahead: int, **axes: str | int) -> _Timed:
        num_batches = max(self.spec.batches, ahead)
        small = replace(self.workload, batch_size=CHECKED_EACH, exact=True)
        variant = Variant(
            name=name,
            case=self._case(part, self.workload, num_batches, axes),
            build=build,
            proven_at=[] if self.workload.inexact else [Pass(small, self.spec.check_steps)],
            timed_at=Pass(replace(self.workload, each=self.workload.batch_size), num_batches),
        )
        return _Timed(variant, "step_time", num_batches)

    def _case(self, part: str, workload: Workload, num_batches: int, axes: Mapping[str, Scalar]) -> Case:
        size = workload.batch_size
        amount: Case = {
            "batch_size": size,
            "unit": workload.unit,
            "units": workload.units(size),
            "batches": num_batches,
        }
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
