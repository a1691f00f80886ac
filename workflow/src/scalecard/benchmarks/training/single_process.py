"""The strategies of one process that drives several devices: model parallelism, our pipelines, nn.DataParallel."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from scalecard.benchmarks.training.cut_model import balanced_cuts, crossing, cut, update
from scalecard.benchmarks.training.reference_cache import References, Setting
from scalecard.benchmarks.training.simulated_pipelines import parts
from scalecard.benchmarks.training.strategy import LOCAL, UPDATE, CannotBe, StrategyBuilder, trained
from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Subject
from scalecard.parallel.model_parallel import ModelParallel
from scalecard.parallel.pipeline import ScheduledPipeline, TextbookPipeline
from scalecard.parallel.schedules import SCHEDULES, Schedule
from scalecard.parallel.step import BatchCycle, Step, state_of
from scalecard.records.strategies import DATA_PARALLEL, MODEL_PARALLEL, OUR_1F1B, OUR_GPIPE, SINGLE
from scalecard.workloads.nested import Tree, leaves, rows, sizes
from scalecard.workloads.reference import trainable
from scalecard.workloads.stage_cuts import Cuts
from scalecard.workloads.workload import HOST, Workload

NORM_BYTES = 4  # of the squared norm of a stage's gradients
ON_CPU = "nn.DataParallel is a silent no-op on a CPU: it would time the single device again"
REPLICAS = "the replicas of nn.DataParallel are made anew for every forward, in which they would be compiled anew"


@dataclass(frozen=True)
class InProcess:
    """How one process trains a model in stages: the executor, and its step at a setting.

    `crossings`: how often what stages hand over is copied by us; autograd hands gradients back, unless we do.
    """

    executor: type[ModelParallel]
    step: Callable[[Setting], Callable[..., None]]
    crossings: int = 0

    def model(self, devices: Sequence[Device], workload: Workload, cuts: Cuts) -> tuple[nn.Module, ModelParallel]:
        """The model, and its stages on the first of these devices; without `cuts` it is itself the only one."""
        whole, stages = in_stages(workload, cuts, devices[0])
        return whole, self.executor(
            stages, devices[: len(stages)], optimizer=workload.optimizer_settings, loss=workload.loss
        )


def in_stages(workload: Workload, cuts: Cuts, first: Device) -> tuple[nn.Module, list[nn.Module]]:
    """The model, and its stages; without `cuts` it is itself the only one, on the first device."""
    if cuts:
        return cut(workload, cuts)
    whole = workload.network(first.torch)
    return whole, [whole]


def _scheduled(schedule: Schedule) -> InProcess:
    return InProcess(
        ScheduledPipeline,
        lambda at: partial(ScheduledPipeline.pipelined_step, split_size=at.split_size, schedule=schedule),
        crossings=2,
    )


WHOLE = InProcess(ModelParallel, lambda at: partial(ModelParallel.step, micro_batch_size=at.split_size))
IN_STAGES = replace(WHOLE, crossings=1)
TEXTBOOK = InProcess(
    TextbookPipeline, lambda at: partial(TextbookPipeline.pipelined_step, split_size=at.split_size), crossings=1
)
OURS = {name: _scheduled(schedule) for name, schedule in SCHEDULES.items()}


def strategies(devices: Sequence[Device], *, stages: bool = True) -> Iterator[StrategyBuilder]:
    """Those that use all of these devices, and their `stages` alone.

    Of one device also steps over smaller batches, and the update by itself.
    """
    if len(devices) == 1:
        yield StrategyBuilder(SINGLE, partial(subject, WHOLE, devices))
        yield StrategyBuilder(SINGLE, partial(subject, WHOLE, devices), metric=LOCAL)
        yield StrategyBuilder(SINGLE, partial(_update, devices[0]), metric=UPDATE, of_batch=False)
        return
    yield StrategyBuilder(DATA_PARALLEL, partial(_data_parallel, devices))
    for kind, form in {MODEL_PARALLEL: IN_STAGES, OUR_GPIPE: OURS["gpipe"], OUR_1F1B: OURS["1f1b"]}.items():
        yield StrategyBuilder(kind, partial(_balanced, form, devices))
    yield from parts(devices) if stages else ()


def _update(device: Device, _references: References, at: Setting) -> Subject:
    return update(at.workload.network(HOST), device, at.workload.optimizer_settings)


def _balanced(form: InProcess, devices: Sequence[Device], references: References, at: Setting) -> Subject:
    return subject(form, devices, references, replace(at, cuts=balanced_cuts(at.workload, at.devices)))


def subject(
    form: InProcess,
    devices: Sequence[Device],
    references: References,
    at: Setting,
    *,
    shared: Callable[[Workload, Cuts], tuple[nn.Module, ModelParallel]] | None = None,
    repeats: int = 1,
) -> Subject:
    """`repeats` steps per call, each like the one that is proven: over several, rounding alone may change too much.

    Subjects that are timed may have a `shared` model, whose state is put back.
    """
    workload = at.workload
    model, staged = (partial(form.model, devices) if workload.exact or not shared else shared)(workload, at.cuts)
    batches = workload.batches(staged.devices[0].torch, staged.devices[-1].torch)
    step = BatchCycle(partial(form.step(at), staged), batches)
    counts, optimizers = _counts(form, references, at, batches[0][0]), staged.optimizers
    return repeated(
        at, step, model, staged.stages, staged.devices, references, counts, optimizers, repeats, **step.cycle
    )


def repeated(
    at: Setting,
    step: Callable[[], object],
    model: nn.Module,
    stages: Sequence[nn.Module],
    devices: Sequence[Device],
    references: References,
    counts: Mapping[str, float],
    optimizers: Sequence[torch.optim.Optimizer],
    repeats: int,
    **more: Any,
) -> Subject:
    """A subject that takes `repeats` steps in a call, each with these counts and an update, and is proven by one."""
    values, optimizer = trainable(model), at.workload.optimizer_settings
    once = {**optimizer.updates(values), **counts}

    def work() -> None:
        for _ in range(repeats):
            step()

    proven = trained(
        at,
        step,
        partial(state_of, model),
        references.at(at.workload, at.micro_sizes()),
        references=references,
        modules=stages,
        devices=devices,
        counts={
            **{name: repeats * each for name, each in once.items()},
            "optimizer bytes": optimizer.state_bytes(values),
        },
        optimizers=optimizers,
        **more,
    )
    return replace(proven, work=work)


def _counts(form: InProcess, references: References, at: Setting, inputs: Tree) -> dict[str, float]:
    """What a step does."""
    workload, micro_sizes, first = at.workload, at.micro_sizes(), next(leaves(inputs)).device
    counts: dict[str, float] = {"forwards": len(micro_sizes)}
    if isinstance(inputs, Tensor):  # the rows of a dict are not seen
        counts["samples"] = rows(inputs)
    if not (workload.exact or workload.varies):  # nor are batches of unequal length alike
        crossing_bytes = crossing(workload, at.cuts, micro_sizes, first) if form.crossings else 0
        counts |= references.counts(workload, micro_sizes)
        norms = NORM_BYTES * (len(at.cuts) + 1) ** 2 if workload.recipe.clip else 0  # of every stage, to every device
        handed = sum(leaf.nbytes for leaf in leaves(inputs)) + form.crossings * crossing_bytes
        counts["received bytes"] = handed + norms
    return counts


def _data_parallel(devices: Sequence[Device], references: References, at: Setting) -> Subject:
    """DataParallel's threads are not seen, so their operations are not counted."""
    workload, first = at.workload, devices[0]
    if first.torch.type == "cpu":
        raise CannotBe(ON_CPU)
    if workload.recipe.compile:
        raise CannotBe(REPLICAS)
    model = workload.network(first.torch)
    wrapped = nn.DataParallel(model, device_ids=[device.torch for device in devices[: at.devices]])
    batch = workload.batch(workload.batch_size, first.torch)
    optimizer = workload.optimizer_settings
    micro_sizes = workload.micro_batch_sizes(workload.batch_size)
    scattered = [part for micro in micro_sizes for part in sizes(micro, -(-micro // at.devices))]
    step = Step.of(workload, wrapped, batch)
    return trained(
        at,
        partial(first.submit, step),
        partial(state_of, model),
        references.at(workload, scattered),
        references=references,
        modules=[wrapped],
        devices=devices,
        counts={"forwards": len(micro_sizes), **optimizer.counts(trainable(model))},
        optimizers=[step.optimizer],
    )
