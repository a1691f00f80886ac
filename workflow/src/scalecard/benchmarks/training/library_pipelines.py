"""PyTorch's own pipelines, one stage per rank: which micro-batches they take, and what a rank's part must do."""

from dataclasses import replace

from torch import Tensor, nn

from scalecard.benchmarks.training import cut_model
from scalecard.benchmarks.training.reference_cache import References, Setting
from scalecard.benchmarks.training.strategy import CannotBe, trained
from scalecard.distributed.context import RankContext
from scalecard.measuring.case_variant import Subject
from scalecard.parallel.device_mesh import mesh, pipeline_group
from scalecard.parallel.step import state_of
from scalecard.parallel.torch_pipelining import LibraryPipeline, channels_last_stage
from scalecard.records import strategies as kinds
from scalecard.workloads.nested import rows
from scalecard.workloads.recipe import change_forward
from scalecard.workloads.reference import trainable
from scalecard.workloads.stage_cuts import Cuts
from scalecard.workloads.workload import HOST, Workload


def suits(schedule: kinds.Schedule, replicas: int, at: Setting) -> None:
    """CannotBe if the library's schedule cannot take these micro-batches."""
    each, depth = at.workload.batch_size // replicas, at.devices // replicas
    if each % at.num_micro:
        raise CannotBe(f"the library needs equal micro-batches: {at.num_micro} do not divide {each} samples")
    if schedule is not kinds.Schedule.GPIPE and at.num_micro < depth:
        raise CannotBe(f"the library's 1F1B needs at least {depth} micro-batches, and the batch makes {at.num_micro}")
    if schedule is kinds.Schedule.INTERLEAVED and at.num_micro % depth:
        raise CannotBe(f"the library's interleaved 1F1B needs a multiple of {depth} micro-batches, not {at.num_micro}")


def pipeline(
    schedule: kinds.Schedule, ctx: RankContext, references: References, at: Setting, *, replicas: int = 1
) -> Subject:
    """A rank's part of a pipeline over all ranks of a replica, which trains on its equal share of the batch."""
    workload, depth = at.workload, ctx.world_size // replicas
    num_stages = depth * schedule.stages_each
    cuts = at.cuts or cut_model.balanced_cuts(at.workload, num_stages)
    model, stages = _cut(workload, cuts)
    if not all(isinstance(part, Tensor) for part in workload.batch(1, HOST)):
        raise CannotBe("the library's pipelines take one tensor as inputs and one as targets")
    made = LibraryPipeline(
        {number: stages[number] for number in range(ctx.rank % depth, num_stages, depth)},
        num_stages,
        workload.shared(ctx.device, ctx.rank // depth, replicas)[0],
        schedule=schedule,
        num_micro=at.num_micro,
        device=ctx.device,
        loss=workload.loss,
        optimizer=workload.optimizer_settings,
        group=pipeline_group(ctx, depth),
        replicas=mesh(ctx, replicas).get_group("replica") if replicas > 1 else None,
    )
    whole, num_trained, own = state_of(model), len(trainable(model)), {id(tensor) for tensor in made.state()}
    places = [place for place, tensor in enumerate(whole) if id(tensor) in own]
    mine = [p for p in places if p < num_trained], [p - num_trained for p in places if p >= num_trained]
    sizes = (workload.batch_size // replicas // at.num_micro,) * at.num_micro * replicas
    counts = {"forwards": at.num_micro, **workload.optimizer_settings.counts(whole[p] for p in mine[0])}
    if not workload.exact and replicas == 1 and schedule.stages_each == 1:
        counts |= _stage_counts(ctx, references, at, cuts)
    return trained(
        at,
        made.step,
        lambda: [whole[place] for place in places],
        lambda: references.at(workload, sizes)().only(*mine),
        references=references,
        modules=made.modules,
        devices=[ctx],
        counts=counts,
        optimizers=[made.optimizer],
    )


def _cut(workload: Workload, cuts: Cuts) -> tuple[nn.Module, list[nn.Module]]:
    """The model and its stages, which hand over contiguous tensors."""
    model, stages = cut_model.cut(workload, cuts)
    for stage in stages if workload.recipe.channels_last else ():
        change_forward(stage, channels_last_stage(type(stage).forward))
    return model, stages


def _stage_counts(ctx: RankContext, references: References, at: Setting, cuts: Cuts) -> dict[str, float]:
    """What this rank's stage must do; what one rank has no memory to count, no rank counts.

    Of two ranks, each sends as many bytes as it gets; one between two others does both twice.
    """
    size = at.workload.batch_size // at.num_micro
    micro = cut_model.CutWorkload(replace(at.workload, batch_size=size), cuts, references.counting)
    counts = cut_model.plain_flops(ctx.rank, ctx.device, micro)
    if counts:
        counts["samples"] = rows(cut_model.given(micro, ctx.device)[ctx.rank].inputs)
    if not all(ctx.all_gather(counts)):
        counts = {}
    if ctx.world_size == 2:
        counts["sent bytes"] = micro.crossing(0, ctx.device)
    return {name: at.num_micro * value for name, value in counts.items()}
