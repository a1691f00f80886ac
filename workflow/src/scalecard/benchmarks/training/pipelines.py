"""Pipelines, and a model in stages: by one process, ours and the textbook's; by the library on ranks; and as printed.

What is printed is the tutorial's own code, proven and timed beside ours at the same settings.

Source: PyTorch tutorial "Single-Machine Model Parallel Best Practices".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from scalecard.benchmarks.training import stage_timing
from scalecard.benchmarks.training.cut_model import TEXTBOOK, balanced_cuts, crossing, cut
from scalecard.benchmarks.training.strategy import CannotBe, References, Setting, trained
from scalecard.distributed.context import RankContext
from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.parallel.model_parallel import ModelParallel
from scalecard.parallel.pipeline import ScheduledPipeline
from scalecard.parallel.step import BatchCycle, state_of
from scalecard.parallel.torch_pipelining import LibraryPipeline, contiguous_stage, mesh, pipeline_group
from scalecard.parallel.tutorial_pipeline import TutorialModel, TutorialStep
from scalecard.records.schedules import SCHEDULES
from scalecard.records.strategies import MODEL_PARALLEL, SINGLE, Schedule
from scalecard.workloads.nested import Tree, leaves, rows
from scalecard.workloads.recipe import change_forward
from scalecard.workloads.reference import trainable, untrained
from scalecard.workloads.stage_cuts import Cuts
from scalecard.workloads.workload import HOST, Workload

NORM_BYTES = 4  # of the squared norm of a stage's gradients
PRINTED = (SINGLE.name, MODEL_PARALLEL.name, "textbook")  # the tutorial's network on one device, on two, and pipelined


Executor = Callable[..., ModelParallel]
OURS: dict[str, Executor] = {
    name: partial(ScheduledPipeline, schedule=schedule) for name, schedule in SCHEDULES.items()
}


def staged_model(
    executor: Executor, devices: Sequence[Device], workload: Workload, cuts: Cuts
) -> tuple[nn.Module, ModelParallel]:
    """The model, and its stages on the first of these devices; without `cuts` it is itself the only one."""
    whole, stages = in_stages(workload, cuts, devices[0])
    settings = workload.optimizer_settings
    return whole, executor(stages, devices[: len(stages)], optimizer=settings, loss=workload.loss)


def in_stages(workload: Workload, cuts: Cuts, first: Device) -> tuple[nn.Module, list[nn.Module]]:
    """The model, and its stages; without `cuts` it is itself the only one, on the first device."""
    if cuts:
        return cut(workload, cuts)
    whole = workload.network(first.torch)
    return whole, [whole]


def subject(
    executor: Executor,
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
    own = partial(staged_model, executor, devices)
    model, staged = (own if workload.exact or not shared else shared)(workload, at.cuts)
    batches = workload.batches(staged.devices[0].torch, staged.devices[-1].torch)
    step = BatchCycle(partial(staged.step, split_size=at.split_size), batches)
    crossings = 2 if executor in OURS.values() else 1  # gradients are handed back by us, or by autograd
    return repeated(
        at,
        step,
        model,
        stages=staged.stages,
        devices=staged.devices,
        references=references,
        counts=_counts(crossings, references, at, batches[0][0]),
        optimizers=staged.optimizers,
        repeats=repeats,
        **step.cycle,
    )


def repeated(
    at: Setting,
    step: Callable[[], object],
    model: nn.Module,
    *,
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


def _counts(crossings: int, references: References, at: Setting, inputs: Tree) -> dict[str, float]:
    """What a step does; `crossings`: how often what stages hand over is copied by us."""
    workload, micro_sizes, first = at.workload, at.micro_sizes(), next(leaves(inputs)).device
    counts: dict[str, float] = {"forwards": len(micro_sizes)}
    if isinstance(inputs, Tensor):  # the rows of a dict are not seen
        counts["samples"] = rows(inputs)
    if not (workload.exact or workload.varies):  # nor are batches of unequal length alike
        crossing_bytes = sum(crossing(workload, at.cuts, workload.batch_size, first)) if at.cuts else 0
        counts |= references.counts(workload, micro_sizes)
        norms = NORM_BYTES * (len(at.cuts) + 1) ** 2 if workload.recipe.clip else 0  # of every stage, to every device
        handed = sum(leaf.nbytes for leaf in leaves(inputs)) + crossings * crossing_bytes
        counts["received bytes"] = handed + norms
    return counts


def tutorial_variants(
    variants: Sequence[Variant], devices: Sequence[Device], references: References, repeats: int = 1
) -> list[Variant]:
    """Those of the variants that the tutorial has, on one device or at its cut, by its own code: the same settings."""
    build = partial(_tutorial, devices, references, repeats)
    return [
        replace(each, name=f"{each.name}, as printed", build=build)
        for each in variants
        if each.case.get("strategy") in PRINTED and each.case.get("cut", TEXTBOOK) == TEXTBOOK
    ]


def _tutorial(devices: Sequence[Device], references: References, repeats: int, at: Setting) -> Subject:
    """`repeats` steps per call as the tutorial prints them, on one device or cut over several; each draws its batch."""
    workload, optimizer = at.workload, at.workload.optimizer_settings
    whole, stages = in_stages(workload, at.cuts, devices[0])
    used = devices[: len(stages)]
    model = TutorialModel(stages, [device.torch for device in used], at.split_size)
    made, draw = optimizer.build(trainable(whole)), partial(workload.batch, workload.batch_size, HOST)
    step = partial(devices[0].submit, TutorialStep(model, draw, loss=workload.loss, optimizer=made))
    counts: dict[str, float] = {"forwards": len(at.micro_sizes()), "samples": workload.batch_size}
    counts |= {} if workload.exact else references.counts(workload, at.micro_sizes())
    return repeated(
        at,
        step,
        whole,
        stages=stages,
        devices=used,
        references=references,
        counts=counts,
        optimizers=[made],
        repeats=repeats,
    )


def suits(schedule: Schedule, replicas: int, at: Setting) -> None:
    """CannotBe if the library's schedule cannot take these micro-batches."""
    each, depth = at.workload.batch_size // replicas, at.devices // replicas
    if each % at.num_micro:
        raise CannotBe(f"the library needs equal micro-batches: {at.num_micro} do not divide {each} samples")
    if schedule is not Schedule.GPIPE and at.num_micro < depth:
        raise CannotBe(f"the library's 1F1B needs at least {depth} micro-batches, and the batch makes {at.num_micro}")
    if schedule is Schedule.INTERLEAVED and at.num_micro % depth:
        raise CannotBe(f"the library's interleaved 1F1B needs a multiple of {depth} micro-batches, not {at.num_micro}")


def pipeline(
    schedule: Schedule, ctx: RankContext, references: References, at: Setting, *, replicas: int = 1
) -> Subject:
    """A rank's part of a pipeline over all ranks of a replica, which trains on its equal share of the batch."""
    workload, depth = at.workload, ctx.world_size // replicas
    num_stages = depth * schedule.stages_each
    cuts = at.cuts or balanced_cuts(at.workload, num_stages)
    model, stages = _cut(workload, cuts)
    if not all(isinstance(part, Tensor) for part in workload.batch(1, HOST)):
        raise CannotBe("the library's pipelines take one tensor as inputs and one as targets")
    made = LibraryPipeline(
        {number: stages[number] for number in range(ctx.rank % depth, num_stages, depth)},
        num_stages,
        workload.shared(ctx.device, ctx.rank // depth, replicas)[0],
        workload,
        schedule=schedule,
        num_micro=at.num_micro,
        device=ctx.device,
        group=pipeline_group(ctx, depth),
        replicas=mesh(ctx, replicas).get_group("replica") if replicas > 1 else None,
    )
    own = {id(tensor) for stage in made.modules for tensor in state_of(stage)}
    mine, both = [tensor for tensor in state_of(model) if id(tensor) in own], (trainable(model), untrained(model))
    places = [[place for place, tensor in enumerate(each) if id(tensor) in own] for each in both]
    sizes = (workload.batch_size // replicas // at.num_micro,) * at.num_micro * replicas
    counts = {"forwards": at.num_micro, **workload.optimizer_settings.counts(p for p in mine if p.requires_grad)}
    if not workload.exact and replicas == 1 and schedule.stages_each == 1:
        counts |= _stage_counts(ctx, references, at, cuts)
    return trained(
        at,
        made.step,
        lambda: mine,
        lambda: references.at(workload, sizes)().only(*places),
        references=references,
        modules=made.modules,
        devices=[ctx],
        counts=counts,
        optimizers=[made.optimizer],
    )


def _cut(workload: Workload, cuts: Cuts) -> tuple[nn.Module, list[nn.Module]]:
    """The model and its stages, which hand over contiguous tensors."""
    model, stages = cut(workload, cuts)
    for stage in stages:
        change_forward(stage, contiguous_stage(type(stage).forward, workload.recipe.channels_last))
    return model, stages


def _stage_counts(ctx: RankContext, references: References, at: Setting, cuts: Cuts) -> dict[str, float]:
    """What this rank's stage must do; what one rank has no memory to count, no rank counts.

    Of two ranks, each sends as many bytes as it gets; one between two others does both twice.
    """
    micro = Setting(replace(at.workload, batch_size=at.workload.batch_size // at.num_micro), at.devices, cuts=cuts)
    counts = stage_timing.plain_flops(ctx.rank, ctx.device, micro) if references.counting else {}
    if counts:
        counts["samples"] = rows(stage_timing.given(micro.workload, cuts, ctx.device)[ctx.rank].inputs)
    if not all(ctx.all_gather(counts)):
        counts = {}
    if ctx.world_size == 2:
        counts["sent bytes"] = crossing(micro.workload, cuts, micro.workload.batch_size, ctx.device)[0]
    return {name: at.num_micro * value for name, value in counts.items()}
