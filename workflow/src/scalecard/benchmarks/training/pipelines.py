"""Pipelines over ResNet-50's stages, beside the single device and plain model parallelism: how each is built."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from scalecard import progress
from scalecard.benchmarks.training.plain_steps import Plainly
from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.counting import flops
from scalecard.measuring.training_subject import training
from scalecard.parallel.model_parallel import ModelParallel
from scalecard.parallel.pipeline import ScheduledPipeline, TextbookPipeline
from scalecard.parallel.resnet50 import Workload, bytes_handed_over, one_hot_images, step_without_data
from scalecard.parallel.schedules import SCHEDULES
from scalecard.records.record import Case
from scalecard.records.strategies import MODEL_PARALLEL, SINGLE
from scalecard.workloads import nested

BETWEEN_LAYERS = {2: (8,), 3: (4, 14), 4: (4, 8, 14)}  # the cuts for so many stages on which equality is proven


@dataclass(frozen=True)
class Setting:
    """Where an implementation is built: the workload with its cut, and the samples of a micro-batch."""

    load: Workload
    split_size: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of every micro-batch; the last one may be smaller."""
        return nested.sizes(self.load.batch_size, self.split_size)

    def __str__(self) -> str:
        return f"{progress.counted(len(self.sizes), 'micro-batch')} through {self.load.num_stages} stages"

    def counts(self) -> dict[str, float]:
        """What one step must do."""
        each = {"FLOPs": flops_of(self.load), "updates": 1}
        return {**each, "forwards": len(self.sizes), "samples": self.load.batch_size}


@functools.cache
def flops_of(load: Workload, stage: int | None = None) -> float:
    """Of a step, or of one of its stages."""
    return flops(step_without_data(load, stage))


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


def whole_batches() -> list[Implementation]:
    """What pipelines are compared with; they ignore the split size, which is the batch's."""
    single = Implementation(SINGLE.name, ModelParallel, lambda size: ModelParallel.step, on_one_device=True)
    return [single, Implementation(MODEL_PARALLEL.name, ModelParallel, lambda size: ModelParallel.step)]


def textbooks() -> Implementation:
    """The textbook's pipeline."""
    return Implementation(
        "textbook", TextbookPipeline, lambda size: partial(TextbookPipeline.pipelined_step, split_size=size)
    )


def ours() -> list[Implementation]:
    """Ours, by each schedule."""

    def scheduled(name: str, size: int) -> Callable[..., None]:
        return partial(ScheduledPipeline.pipelined_step, split_size=size, schedule=SCHEDULES[name])

    return [Implementation(name, ScheduledPipeline, partial(scheduled, name)) for name in SCHEDULES]


def variants(
    spec: Any,
    devices: list[Device],
    implementation: Implementation,
    load: Workload,
    sizes: Sequence[int],
    plainly: Plainly,
    case: Case,
    *,
    proven_stages: int = 0,
) -> Iterator[Variant]:
    """One implementation at each of its split sizes; as timed they share one model, whose state is put back.

    Equality is proven with the model cut as it is timed or, if it is split at all, between layers into
    `proven_stages`.
    """
    small = Workload.of_check(spec)
    shared = functools.cache(partial(_model, implementation, devices))
    build = partial(_subject, implementation, devices, plainly, shared)
    for size in sizes:
        alike = max(1, round(size * small.batch_size / load.batch_size))
        cuts = BETWEEN_LAYERS[proven_stages] if proven_stages and size < load.batch_size else load.cuts
        yield Variant(
            name=", ".join([implementation.name, f"split size {size}", *map(str, case.values())]),
            case={"implementation": implementation.name, "split_size": size, "batch_size": load.batch_size, **case},
            build=build,
            proven_at=[Setting(small.cut(cuts), alike)],
            timed_at=Setting(load, size),
            devices=devices[: 1 if implementation.on_one_device else load.num_stages],
        )


def _model(implementation: Implementation, devices: list[Device], load: Workload) -> ModelParallel:
    used = [devices[0]] * load.num_stages if implementation.on_one_device else devices[: load.num_stages]
    return implementation.strategy(load.stages(), used, lr=load.lr)


def _subject(
    implementation: Implementation,
    devices: list[Device],
    plainly: Plainly,
    shared: Callable[[Workload], ModelParallel],
    setting: Setting,
) -> Subject:
    load = setting.load
    model = (partial(_model, implementation, devices) if load.exact else shared)(load)
    inputs = one_hot_images(load, model.devices[0].torch, model.devices[-1].torch)
    return training(
        f"{implementation.name}, {setting}",
        partial(implementation.step_at(setting.split_size), model, *inputs),
        model.state,
        plainly.of(load, setting.sizes),
        times=plainly.steps(load),
        steps=plainly.steps(load),
        devices=model.devices,
        counts={} if load.exact else _counts(implementation, setting),  # what is only proven is not counted
        module=model.stages[0],
    )


def _counts(implementation: Implementation, setting: Setting) -> dict[str, float]:
    images, crossing = bytes_handed_over(setting.load)
    return {**setting.counts(), "received bytes": images + implementation.crossings * crossing}
