"""How small should micro-batches be, and how close does a pipeline come to the ideal?

ResNet-50 over two devices in micro-batches of every split size: the textbook's way (one thread issues, autograd runs
the backward), our own GPipe and 1F1B schedules, and torch.distributed.pipelining's; with the single device and plain
model parallelism measured in the same rounds.

The answer would be wrong if micro-batching computed something else. With batch normalisation in training mode it does,
by definition, since statistics are taken over a micro-batch. Equality with the whole batch is therefore proven in
float64 in eval mode, on two devices and on up to four; training mode is timed, as in the textbook, and compared with a
plain loop over the same micro-batches. Micro-batches, operations, updates and bytes handed over are counted.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import nn

from scalecard import progress
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch_and_record
from scalecard.distributed.layout import Layout
from scalecard.hardware.counts import provable
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.counting import flops
from scalecard.measuring.out_of_memory import empty_cache, guarded
from scalecard.measuring.peak_memory import peak_memory
from scalecard.measuring.proof import Change, Trained, expected
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.spec import Common, Positive, Rate, Sweep
from scalecard.measuring.subjects import training
from scalecard.measuring.variant import Subject, Variant
from scalecard.records.record import Case, Record
from scalecard.training.library_pipeline import LibraryPipeline
from scalecard.training.model_parallel import ModelParallel
from scalecard.training.pipeline import ScheduledPipeline, TextbookPipeline
from scalecard.training.resnet50 import Workload, bytes_handed_over, one_hot_images, plain, step_without_data
from scalecard.training.schedules import SCHEDULES


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
class Setting:
    """Where an implementation is built: the workload, the samples of a micro-batch, and the number of stages."""

    load: Workload
    split_size: int
    num_stages: int = 2

    @property
    def sizes(self) -> list[int]:
        """Of every micro-batch; the last one may be smaller."""
        whole, rest = divmod(self.load.batch_size, self.split_size)
        return [self.split_size] * whole + [rest] * bool(rest)

    def __str__(self) -> str:
        return f"{progress.counted(len(self.sizes), 'micro-batch')} through {self.num_stages} stages"

    def counts(self) -> dict[str, float]:
        """What one step must do."""
        return {"FLOPs": _flops(self.load), "updates": 1, "forwards": len(self.sizes), "samples": self.load.batch_size}


@functools.cache
def _flops(load: Workload, stage: int | None = None) -> float:
    return flops(step_without_data(load, stage))


class Plainly:
    """What every implementation must do, by the plain loop on one device; each is computed once."""

    def __init__(self, device: Device | RankContext, check_steps: int) -> None:
        self.device, self.check_steps = device, check_steps
        self.wanted = functools.cache(self._wanted)

    def at(self, setting: Setting) -> Callable[[], Trained | Change]:
        """In float64, with batch norm in eval mode, micro-batches make no difference."""
        sizes = [setting.load.batch_size] if setting.load.exact else setting.sizes
        return partial(self.wanted, setting.load, tuple(sizes))

    def _wanted(self, load: Workload, sizes: tuple[int, ...]) -> Trained | Change:
        device = self.device.torch if isinstance(self.device, Device) else self.device.device
        plainly = partial(plain, load, device, sizes, self.times(load))
        return expected("the plain loop", plainly, exact=load.exact)

    def times(self, load: Workload) -> int:
        return self.check_steps if load.exact else 1


@dataclass(frozen=True)
class Implementation:
    """A name, the executor's class, and its step at a split size."""

    name: str
    strategy: type[ModelParallel]
    step_at: Callable[[int], Callable[..., None]]
    on_one_device: bool = False

    @property
    def crossings(self) -> int:
        """How often activations are handed over by us; autograd itself hands their gradients back, unless we do."""
        return 2 if self.strategy is ScheduledPipeline else 1


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Everything in one process first, then the library's schedules on two ranks."""
    if machine.num_devices < 2:
        ours = [implementation.name for implementation in _pipelines()]
        for name in (*ours, *(f"torch {schedule}" for schedule in SCHEDULES)):
            case: Case = {"implementation": name, "split_size": spec.split_sizes[0]}
            yield Record.skipped(case, "needs 2 devices, this machine has 1")
        return
    with open_devices(machine, provable(machine)) as devices:
        yield from guarded(_in_process(spec, devices), {"implementation": "in one process"})
    empty_cache()
    progress.doing("torch.distributed.pipelining on two ranks")
    runnable = [(s, size) for s in SCHEDULES for size in spec.split_sizes if not _unsuited(spec.batch_size, size, s)]
    cases = [_case(spec, schedule, size) for schedule, size in runnable]
    yield from launch_and_record(_rank, spec, layout=Layout(2), machine=machine, cases=cases, metric="time")


def _pipelines() -> list[Implementation]:
    """The textbook's pipeline, and ours by each schedule."""

    def textbook(size: int) -> Callable[..., None]:
        return partial(TextbookPipeline.pipelined_step, split_size=size)

    def scheduled(name: str, size: int) -> Callable[..., None]:
        return partial(ScheduledPipeline.pipelined_step, split_size=size, schedule=SCHEDULES[name])

    ours = [Implementation(name, ScheduledPipeline, partial(scheduled, name)) for name in SCHEDULES]
    return [Implementation("textbook", TextbookPipeline, textbook), *ours]


def _whole_batches() -> list[Implementation]:
    """What pipelines are compared with; they ignore the split size, which is the batch's."""
    single = Implementation("single device", ModelParallel, lambda size: ModelParallel.step, on_one_device=True)
    return [single, Implementation("model parallel", ModelParallel, lambda size: ModelParallel.step)]


def _in_process(spec: Spec, devices: list[Device]) -> Iterator[Record]:
    """The single device, plain model parallelism, and every pipeline at every split size, in the same rounds."""
    plainly = Plainly(devices[0], spec.check_steps)
    variants = [
        variant
        for implementations, sizes in ((_whole_batches(), [spec.batch_size]), (_pipelines(), spec.split_sizes))
        for implementation in implementations
        for variant in _variants(spec, devices, implementation, sizes, plainly)
    ]
    progress.doing(f"{len(variants)} variants, proven one by one, then timed in rounds")
    timings = time_rounds(variants, devices=devices[:2], rule=spec.measure, energy=True)
    for timing in timings:
        yield timing.record()
    yield from peak_memory(timings, model="resnet50")


def _variants(
    spec: Spec, devices: list[Device], implementation: Implementation, sizes: Sequence[int], plainly: Plainly
) -> Iterator[Variant]:
    """One implementation at each of its split sizes; as timed they share one model, whose state is put back."""
    load, small = Workload.of(spec), Workload.of_check(spec)
    shared = functools.cache(partial(_model, implementation, devices))
    build = partial(_subject, implementation, devices, plainly, shared)
    for size in sizes:
        case: Case = {"implementation": implementation.name, "split_size": size, "batch_size": spec.batch_size}
        case["image_size"] = spec.image_size
        alike = max(1, round(size * small.batch_size / spec.batch_size))
        stages = len(devices) if size < spec.batch_size else 2
        yield Variant(
            name=f"{implementation.name} {size}",
            case=case,
            build=build,
            proven_at=[Setting(small, alike, stages)],
            timed_at=Setting(load, size),
            devices=devices[: 1 if implementation.on_one_device else 2],
        )


def _model(implementation: Implementation, devices: list[Device], load: Workload, num_stages: int) -> ModelParallel:
    used = [devices[0]] * num_stages if implementation.on_one_device else devices[:num_stages]
    return implementation.strategy(load.stages(num_stages), used, lr=load.lr)


def _subject(
    implementation: Implementation,
    devices: list[Device],
    plainly: Plainly,
    shared: Callable[[Workload, int], ModelParallel],
    setting: Setting,
) -> Subject:
    load = setting.load
    make = partial(_model, implementation, devices) if load.exact else shared
    model = make(load, setting.num_stages)
    inputs = one_hot_images(load, model.devices[0].torch, model.devices[-1].torch)
    return training(
        f"{implementation.name}, {setting}",
        partial(implementation.step_at(setting.split_size), model, *inputs),
        model.state,
        plainly.at(setting),
        times=plainly.times(load),
        steps=plainly.times(load),
        devices=model.devices,
        counts={} if load.exact else _counts(implementation, setting),  # what is only proven is not counted
        module=model.stages[0],
    )


def _counts(implementation: Implementation, setting: Setting) -> dict[str, float]:
    images, crossing = bytes_handed_over(setting.load, setting.num_stages)
    return {**setting.counts(), "received bytes": images + implementation.crossings * crossing}


def _rank(ctx: RankContext, spec: Spec) -> list[Record]:
    """torch.distributed.pipelining with one stage per rank."""
    plainly = Plainly(ctx, spec.check_steps)
    return [record for schedule in SCHEDULES for record in _library(ctx, spec, schedule, plainly)]


def _library(ctx: RankContext, spec: Spec, schedule: str, plainly: Plainly) -> list[Record]:
    """One of the library's schedules at every split size that it can run."""
    load, small = Workload.of(spec), replace(Workload.of_check(spec), batch_size=4)  # it needs equal micro-batches
    build = partial(_library_subject, ctx, schedule, plainly, load.stages()[ctx.rank])
    records, variants = [], []
    for size in spec.split_sizes:
        case = _case(spec, schedule, size)
        note = _unsuited(spec.batch_size, size, schedule)
        if note:
            records.append(Record.skipped(case, note))
            continue
        at = Setting(load, size)
        variants.append(Variant(name=str(size), case=case, build=build, proven_at=[Setting(small, 1)], timed_at=at))
    progress.doing(f"torch {schedule}: {len(variants)} split sizes")
    timings = time_rounds(variants, devices=[ctx], rule=spec.measure, ranks=ctx, energy=True)
    return records + [timing.record() for timing in timings]


def _case(spec: Spec, schedule: str, split_size: int) -> Case:
    case: Case = {"implementation": f"torch {schedule}", "split_size": split_size, "batch_size": spec.batch_size}
    return {**case, "image_size": spec.image_size}


def _library_subject(ctx: RankContext, schedule: str, plainly: Plainly, shared: nn.Module, setting: Setting) -> Subject:
    """This rank's stage; as timed, the split sizes share one module, whose state is put back."""
    load = setting.load
    stages = load.stages()
    module = stages[ctx.rank] if load.exact else shared
    pipeline = LibraryPipeline(ctx, load, schedule, setting.split_size, module)
    whole = [(len(list(s.parameters())), len(list(s.buffers()))) for s in stages]
    mine = [range(first, first + second) if ctx.rank else range(first) for first, second in zip(*whole, strict=True)]
    return training(
        f"torch {schedule}, {setting}",
        pipeline.step,
        pipeline.state,
        lambda: plainly.at(setting)().only(*mine),
        times=plainly.times(load),
        steps=plainly.times(load),
        devices=[ctx],
        counts={} if load.exact else _sent(ctx.rank, setting),
        module=module,
    )


def _sent(stage: int, setting: Setting) -> dict[str, float]:
    """What one step of one stage must do: each of the two sends as many bytes as it gets."""
    _, crossing = bytes_handed_over(setting.load)
    return {**setting.counts(), "FLOPs": _flops(setting.load, stage), "sent bytes": crossing}


def _unsuited(batch_size: int, split_size: int, schedule: str) -> str:
    """Why the library cannot run this split size, or ''."""
    if batch_size % split_size:
        return f"the library needs equal micro-batches: {split_size} does not divide {batch_size}"
    if schedule == "1f1b" and batch_size // split_size < 2:
        return "the library's 1F1B needs at least as many micro-batches as stages"
    return ""
