"""How small should micro-batches be, and how close does a pipeline come to the ideal?

ResNet-50 over two devices in micro-batches of every split size: the textbook's way (one thread issues, autograd runs
the backward), our own GPipe and 1F1B schedules, and torch.distributed.pipelining's; with the single device and plain
model parallelism measured in the same rounds.

The answer would be wrong if micro-batching computed something else. With batch normalisation in training mode it does,
by definition, since statistics are taken over a micro-batch. Equality is therefore proven in float64 in eval mode, but
training mode is timed, as in the textbook.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from scalecard import progress
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch_and_record
from scalecard.distributed.layout import Layout
from scalecard.hardware.devices import Device, empty_cache, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.out_of_memory import guarded
from scalecard.measuring.peak_memory import peak_memory
from scalecard.measuring.proof import same_parameters
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.spec import Common, Positive, Rate, Sweep
from scalecard.measuring.variant import Variant
from scalecard.records.record import Case, Check, Record
from scalecard.training.library_pipeline import LibraryPipeline, library_parameters
from scalecard.training.model_parallel import ModelParallel
from scalecard.training.pipeline import ScheduledPipeline, TextbookPipeline
from scalecard.training.resnet50 import Workload, one_hot_images, reference, trained
from scalecard.training.schedules import SCHEDULES

Step = Callable[..., None]


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    batch_size: Positive
    image_size: Positive
    num_classes: Positive
    split_sizes: Sweep
    lr: Rate
    check_batch_size: Positive
    check_image_size: Positive
    check_steps: Positive

    def __post_init__(self) -> None:
        if self.image_size < 64:
            raise ValueError(
                f"image_size = {self.image_size}: must be at least 64, or batch norm sees one value per channel"
            )
        for size in self.split_sizes:
            if size > self.batch_size:
                raise ValueError(f"split_sizes = {size}: must be at most batch_size = {self.batch_size}")


@dataclass(frozen=True)
class Implementation:
    """A name, the executor's class, and its step at a split size (ignored for a whole batch)."""

    name: str
    strategy: type[ModelParallel]
    step_at: Callable[[int], Step]
    split_sizes: Sequence[int]


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Everything in one process first, then the library's schedules on two ranks."""
    if machine.num_devices < 2:
        ours = [implementation.name for implementation in _pipelines(spec)]
        for name in (*ours, *(f"torch {schedule}" for schedule in SCHEDULES)):
            case: Case = {"implementation": name, "split_size": spec.split_sizes[0]}
            yield Record.skipped(case, "needs 2 devices, this machine has 1")
        return
    with open_devices(machine, 2) as devices:
        small = Workload.of_check(spec)
        progress.doing("proving equality in float64")
        expected = [p.detach().cpu() for p in reference(small, devices[0], spec.check_steps)]
        yield from guarded(_in_process(spec, devices, small, expected), {"implementation": "in one process"})
    empty_cache()
    progress.doing("torch.distributed.pipelining on two ranks")
    lost: Case = {"implementation": "torch.distributed.pipelining"}
    yield from launch_and_record(
        *(_rank, spec, small, expected), layout=Layout(2), machine=machine, case=lost, metric="time"
    )


def _pipelines(spec: Spec) -> list[Implementation]:
    """The textbook's pipeline, and ours by each schedule."""

    def textbook(size: int) -> Step:
        return partial(TextbookPipeline.pipelined_step, split_size=size)

    def scheduled(name: str, size: int) -> Step:
        return partial(ScheduledPipeline.pipelined_step, split_size=size, schedule=SCHEDULES[name])

    ours = [Implementation(n, ScheduledPipeline, partial(scheduled, n), spec.split_sizes) for n in SCHEDULES]
    return [Implementation("textbook", TextbookPipeline, textbook, spec.split_sizes), *ours]


def _in_process(spec: Spec, devices: list[Device], small: Workload, expected: list[Tensor]) -> Iterator[Record]:
    """The single device, plain model parallelism, and every pipeline at every split size, in the same rounds."""
    whole = [spec.batch_size]
    single = Implementation("single device", ModelParallel, lambda size: ModelParallel.step, whole)
    plain = Implementation("model parallel", ModelParallel, lambda size: ModelParallel.step, whole)
    variants = _variants(spec, [devices[0]] * 2, single, []) + _variants(spec, devices, plain, [])
    for pipeline in _pipelines(spec):
        progress.say(f"proving equality of {pipeline.name}")
        step = pipeline.step_at(max(1, small.batch_size // 2))
        ours = trained(small, devices, step, spec.check_steps, pipeline.strategy)
        variants += _variants(spec, devices, pipeline, [same_parameters(_proof(pipeline.name, spec), ours, expected)])
    progress.doing(f"{len(variants)} variants, in rounds")
    for timing in time_rounds(variants, devices=devices, rule=spec.measure):
        yield timing.record()
    yield from peak_memory(variants, model="resnet50")


def _variants(
    spec: Spec, devices: Sequence[Device], implementation: Implementation, checks: Sequence[Check]
) -> list[Variant]:
    """One implementation at each of its split sizes; they share one model."""
    load = Workload.of(spec)
    model = implementation.strategy(load.stages(), devices, lr=spec.lr)
    inputs = one_hot_images(load, devices[0].torch, devices[-1].torch)
    variants = []
    for size in implementation.split_sizes:
        case: Case = {"implementation": implementation.name, "split_size": size, "batch_size": spec.batch_size}
        case["image_size"] = spec.image_size
        work = partial(implementation.step_at(size), model, *inputs)
        name = f"{implementation.name} {size}"
        variants.append(Variant(name=name, case=case, work=work, checks=checks, devices=devices))
    return variants


def _proof(implementation: str, spec: Spec) -> str:
    """What is proven, in words."""
    return f"{implementation}: parameters after {spec.check_steps} steps, batch norm in eval mode"


def _rank(ctx: RankContext, spec: Spec, small: Workload, expected: list[Tensor]) -> list[Record]:
    """torch.distributed.pipelining with one stage per rank."""
    first = len(list(small.stages()[0].parameters()))
    mine = expected[:first] if ctx.rank == 0 else expected[first:]
    return [record for schedule in SCHEDULES for record in _library(ctx, spec, schedule, small, mine)]


def _library(ctx: RankContext, spec: Spec, schedule: str, small: Workload, mine: list[Tensor]) -> list[Record]:
    """One of the library's schedules at every split size that it can run."""
    name = f"torch {schedule}"
    progress.doing(f"{name}: proving equality in float64")
    ours = library_parameters(ctx, small, schedule, spec.check_steps)
    checks = ctx.all_gather(same_parameters(f"{_proof(name, spec)}, rank {ctx.rank}", ours, mine))
    load = Workload.of(spec)
    module = load.stages()[ctx.rank]
    records, variants = [], []
    for size in spec.split_sizes:
        case: Case = {"implementation": name, "split_size": size, "batch_size": spec.batch_size}
        case["image_size"] = spec.image_size
        note = _unsuited(spec.batch_size, size, schedule)
        if note:
            records.append(Record.skipped(case, note))
        else:
            step = LibraryPipeline(ctx, load, schedule, size, module).step
            variants.append(Variant(name=str(size), case=case, work=step, checks=checks))
    progress.doing(f"{name}: {len(variants)} split sizes")
    timings = time_rounds(variants, devices=[ctx], rule=spec.measure, ranks=ctx)
    return records + [timing.record() for timing in timings]


def _unsuited(batch_size: int, split_size: int, schedule: str) -> str:
    """Why the library cannot run this split size, or ''."""
    if batch_size % split_size:
        return f"the library needs equal micro-batches: {split_size} does not divide {batch_size}"
    if schedule == "1f1b" and batch_size // split_size < 2:
        return "the library's 1F1B needs at least as many micro-batches as stages"
    return ""
