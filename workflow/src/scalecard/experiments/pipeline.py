"""How small should micro-batches be, and how close does a pipeline come to the ideal?

ResNet-50 cut after layer2 over two devices, in micro-batches of every split size: the textbook's way (one thread
issues, autograd runs the backward), our own GPipe and 1F1B schedules, and torch.distributed.pipelining's; with the
single device and plain model parallelism measured in the same rounds. These two and the textbook's way are also timed
as the tutorial prints them: on default streams, and with a batch that is drawn on the host while the clock runs
(`tutorial_time`). At some split sizes also over 2..N devices where the cut is balanced; each stage's forwards,
backwards and update alone, with which the schedules are played; and ours beside the library's in the same rounds.

The answer would be wrong if micro-batching computed something else. With batch normalisation in training mode it does,
by definition, since statistics are taken over a micro-batch. Equality with the whole batch is therefore proven in
float64 in eval mode, on two devices and on up to four; training mode is timed, as in the textbook, and compared with a
plain loop over the same micro-batches. Micro-batches, operations, updates and bytes handed over are counted.
"""

import functools
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

from scalecard import progress
from scalecard.benchmarks.training import stage_timing
from scalecard.benchmarks.training.cut_model import (
    TEXTBOOK,
    OfResNet50,
    after,
    chosen_cuts,
    not_cut,
    resnet50,
    with_blocks,
)
from scalecard.benchmarks.training.pipelines import OURS, Executor, pipeline, staged_model, subject, tutorial_variants
from scalecard.benchmarks.training.strategy import References, Setting
from scalecard.distributed import Layout
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch_and_record
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.failures import empty_cache
from scalecard.hardware.machine import Machine, device_counts, provable
from scalecard.measuring.case_variant import Timing, Variant
from scalecard.measuring.interleaved_timing import round_records, time_rounds
from scalecard.measuring.memory import peak_memory
from scalecard.measuring.more_ranks import driven_by_the_first
from scalecard.measuring.prepare import guarded, too_few_devices
from scalecard.measuring.spec import Sweep
from scalecard.measuring.stopping_rule import in_equal_parts, part_of_budget
from scalecard.measuring.timer import Synchronised
from scalecard.parallel.model_parallel import ModelParallel
from scalecard.parallel.pipeline import TextbookPipeline
from scalecard.records.axes import Case
from scalecard.records.record import Record
from scalecard.records.schedules import SCHEDULES
from scalecard.records.strategies import MODEL_PARALLEL, SINGLE, Schedule
from scalecard.workloads.nested import sizes
from scalecard.workloads.stage_cuts import Cuts
from scalecard.workloads.workload import Workload

BETWEEN_LAYERS = {2: (2,), 3: (1, 3), 4: (1, 2, 3)}  # by number of stages: the layers to cut after, to prove equality
IN_PROCESS_SHARE = 2 / 3  # of the time, if that is short: the rest is for the library
PIPELINES: dict[str, Executor] = {"textbook": TextbookPipeline, **OURS}


@dataclass(frozen=True, kw_only=True)
class Spec(OfResNet50):
    split_sizes: Sweep
    balanced_sizes: Sweep

    @property
    def case(self) -> Case:
        """What all cases have in common."""
        return {"workload": self.model, "image_size": self.image_size}

    def __post_init__(self) -> None:
        if self.image_size < 64:
            too_small = "must be at least 64, or batch norm sees one value per channel"
            raise ValueError(f"image_size = {self.image_size}: {too_small}")
        for size in self.split_sizes:
            if size > self.batch_size:
                raise ValueError(f"split_sizes = {size}: must be at most batch_size = {self.batch_size}")
        for size in self.balanced_sizes:
            if size not in self.split_sizes or self.batch_size % size:
                accepted = f"must be one of split_sizes, and divide batch_size = {self.batch_size}"
                raise ValueError(f"balanced_sizes = {size}: {accepted}")


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Everything in one process first, then the library's schedules on two ranks, and ours beside them."""
    for name in (*PIPELINES, *(f"torch {schedule}" for schedule in SCHEDULES)):
        case: Case = {"workload": spec.model, "strategy": name, "split_size": spec.split_sizes[0]}
        yield from too_few_devices(case, machine, metric="step_time")
    if machine.num_devices < 2:
        return
    count = max(machine.num_devices, provable(machine))
    with part_of_budget(IN_PROCESS_SHARE), open_devices(machine, count) as devices:
        ours = Pipelines(spec, devices, References(devices[0].torch, spec.check_steps))
        case = {"workload": spec.model, "strategy": "in one process"}
        yield from guarded(ours.records(device_counts(machine.num_devices)[1:]), case, metric="step_time")
    empty_cache()
    yield from beside_the_library(spec, machine)


@dataclass(frozen=True)
class Pipelines:
    """The pipelines of one process, on any number of these devices."""

    spec: Spec
    devices: list[Device]
    references: References

    def records(self, counts: Sequence[int]) -> Iterator[Record]:
        """By number of devices: on two, the textbook's cut with all that it is compared with, and the balanced one."""
        spec, workload, blocks = self.spec, resnet50(self.spec), list[Timing]()

        def timed_blocks() -> list[Timing]:
            size = sorted(spec.balanced_sizes)[len(spec.balanced_sizes) // 2]
            micro, num_micro = replace(workload, batch_size=size), workload.batch_size // size
            blocks.extend(
                stage_timing.time_blocks(micro, self.devices[0], spec.measure, spec.case, num_micro=num_micro)
            )
            return blocks

        cuts = chosen_cuts(spec.model, timed_blocks, counts)
        for count in in_equal_parts(counts, label=lambda count: f"in one process on {count} devices", headline=1):
            yield from self._on(count, {name: cut for name, cut in cuts if len(cut) + 1 == count})
        yield from not_cut(spec.model, blocks, counts, {**spec.case, "strategy": "gpipe"})

    def _on(self, count: int, cuts: dict[str, Cuts]) -> Iterator[Record]:
        cases: dict[str, Case] = {name: {**self.spec.case, "devices": count, "cut": name} for name in cuts}
        variants = [variant for name, cut in cuts.items() for variant in self._variants(cut, cases[name])]
        every = [*variants, *tutorial_variants(variants, self.devices, self.references)]
        progress.doing(f"{len(every)} variants on {count} devices, proven one by one, then timed in rounds")
        timings = time_rounds(every, devices=self.devices[:count], rule=self.spec.measure, energy=True)
        printed, timings = timings[len(variants) :], timings[: len(variants)]
        stage = stage_timing.STAGE
        records = [timing.record(stage if "part" in timing.variant.case else "step_time") for timing in timings]
        records += [timing.record("tutorial_time") for timing in printed]
        for name, cut in cuts.items():
            size, sizes = self.spec.batch_size, self.spec.balanced_sizes
            records += stage_timing.records(records, len(cut) + 1, size, sizes, cases[name])
        for record in records:
            yield with_blocks(record, cuts[record.text("cut")]) if "cut" in record.case else record
        yield from peak_memory(timings, workload=self.spec.model)

    def _variants(self, cuts: Cuts, case: Case) -> Iterator[Variant]:
        """The pipelines over one cut, and its stages alone; over the textbook's, also the whole batches."""
        spec = self.spec
        if case["cut"] == TEXTBOOK:
            yield from self.ways(SINGLE.name, ModelParallel, (), [spec.batch_size], spec.case)
            yield from self.ways(MODEL_PARALLEL.name, ModelParallel, cuts, [spec.batch_size], case)
            for name, executor in PIPELINES.items():
                stages = min(4, len(self.devices))
                yield from self.ways(name, executor, cuts, spec.split_sizes, case, proven_stages=stages)
        else:
            for name, executor in OURS.items():
                yield from self.ways(name, executor, cuts, spec.balanced_sizes, case)
        staged, check = (Setting(resnet50(spec, exact=exact), len(cuts) + 1, cuts=cuts) for exact in (False, True))
        yield from stage_timing.alone(staged, check, self.devices, spec.balanced_sizes, case)

    def ways(
        self, name: str, executor: Executor, cuts: Cuts, sizes: Sequence[int], case: Case, *, proven_stages: int = 0
    ) -> Iterator[Variant]:
        """One way to train at each of its split sizes; as timed they share one model, whose state is put back.

        Equality is proven with the model cut as it is timed or, if it is split at all, between layers into
        `proven_stages`.
        """
        workload, small = resnet50(self.spec), resnet50(self.spec, exact=True)
        shared = functools.cache(partial(staged_model, executor, self.devices))
        build = partial(subject, executor, self.devices, self.references, shared=shared)
        for size in sizes:
            alike = max(1, round(size * small.batch_size / workload.batch_size))
            is_split = proven_stages and size < workload.batch_size
            proven_cuts = after(workload.name, *BETWEEN_LAYERS[proven_stages]) if is_split else cuts
            yield Variant(
                name=", ".join([name, f"split size {size}", *map(str, case.values())]),
                case={"strategy": name, "split_size": size, "batch_size": workload.batch_size, **case},
                build=build,
                proven_at=[setting(small, proven_cuts, alike)],
                timed_at=setting(workload, cuts, size),
                devices=self.devices[: len(cuts) + 1],
            )


def setting(workload: Workload, cuts: Cuts, split_size: int) -> Setting:
    """A batch in micro-batches of so many samples; the last one may have fewer."""
    return Setting(workload, len(cuts) + 1, len(sizes(workload.batch_size, split_size)), cuts, split_size)


def beside_the_library(spec: Spec, machine: Machine) -> list[Record]:
    """torch.distributed.pipelining with one stage per rank, and ours in the same rounds.

    Ours live in one process that submits to all devices. So while ours are timed, the other rank waits, and its device
    is the first rank's: on GPUs two processes have memory there, but only one of them computes at a time.
    """
    progress.doing("torch.distributed.pipelining on two ranks, and ours beside it")
    runnable = [(s, size) for s in SCHEDULES for size in spec.split_sizes if not _unsuited(spec.batch_size, size, s)]
    cases = [(_library_case(spec, schedule, size), "step_time") for schedule, size in runnable]
    return launch_and_record(_rank, spec, machine, layout=Layout(2), machine=machine, cases=cases)


def _rank(ctx: RankContext, spec: Spec, machine: Machine) -> Iterator[Record]:
    with open_devices(machine, 2) if ctx.leads else nullcontext(list[Device]()) as devices:
        ours = Pipelines(spec, devices, References(ctx.device, spec.check_steps))
        for schedule in SCHEDULES:
            yield from _library(ctx, spec, schedule, ours)


def _library(ctx: RankContext, spec: Spec, schedule: str, ours: Pipelines) -> Iterator[Record]:
    """One of the library's schedules at every split size that it can run, and ours at some of them."""
    notes = {size: _unsuited(spec.batch_size, size, schedule) for size in spec.split_sizes}
    for size, note in notes.items():
        if note:
            yield Record.skipped(_library_case(spec, schedule, size), note, metric="step_time")
    runnable = [size for size, note in notes.items() if not note]
    small = replace(resnet50(spec, exact=True), batch_size=4)  # the library needs equal micro-batches
    cuts = after(spec.model, 2)
    variants = [
        Variant(
            name=f"torch {schedule}, split size {size}",
            case=_library_case(spec, schedule, size),
            build=partial(pipeline, Schedule(schedule), ctx, ours.references),
            proven_at=[setting(small, cuts, 1)],
            timed_at=setting(resnet50(spec), cuts, size),
        )
        for size in runnable
    ]
    both = [size for size in runnable if size in spec.balanced_sizes]
    case: Case = {**spec.case, "beside": f"torch {schedule}"}
    for one in ours.ways(schedule, OURS[schedule], cuts, both, case):
        variants.append(replace(one, build=driven_by_the_first(ctx, one.build), devices=()))
    progress.doing(f"torch {schedule}: {len(runnable)} split sizes, and ours")
    devices: list[Synchronised] = [ctx, *ours.devices]
    yield from round_records(variants, "step_time", devices=devices, rule=spec.measure, ranks=ctx, energy=True)


def _library_case(spec: Spec, schedule: str, split_size: int) -> Case:
    case: Case = {"strategy": f"torch {schedule}", "library": True, "split_size": split_size}
    return {**case, **spec.case, "batch_size": spec.batch_size}


def _unsuited(batch_size: int, split_size: int, schedule: str) -> str:
    """Why the library cannot run this split size, or ''."""
    if batch_size % split_size:
        return f"the library needs equal micro-batches: {split_size} does not divide {batch_size}"
    if schedule == "1f1b" and batch_size // split_size < 2:
        return "the library's 1F1B needs at least as many micro-batches as stages"
    return ""
