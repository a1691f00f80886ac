"""torch.distributed.pipelining's schedules for any workload, one or two stages per rank; replicas average gradients."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor, nn

from scalecard.benchmarks.training.cut_model import CutWorkload, balanced_cuts, crossing, cut
from scalecard.benchmarks.training.device_mesh import mesh
from scalecard.benchmarks.training.reference_cache import Plainly, Setting
from scalecard.benchmarks.training.stages import plain_flops
from scalecard.benchmarks.training.strategy import CannotBe, trained
from scalecard.distributed.context import RankContext
from scalecard.measuring.case_variant import Subject
from scalecard.parallel.step import state_of
from scalecard.parallel.torch_pipelining import LibraryPipeline, pipeline_group
from scalecard.records.strategies import Schedule
from scalecard.workloads.reference import trainable
from scalecard.workloads.workload import HOST


def suits(schedule: Schedule, replicas: int, at: Setting) -> None:
    """CannotBe if the library's schedule cannot take these micro-batches."""
    each, depth = at.load.batch_size // replicas, at.devices // replicas
    if each % at.num_micro:
        raise CannotBe(f"the library needs equal micro-batches: {at.num_micro} do not divide {each} samples")
    if schedule is not Schedule.GPIPE and at.num_micro < depth:
        raise CannotBe(f"the library's 1F1B needs at least {depth} micro-batches, and the batch makes {at.num_micro}")
    if schedule is Schedule.INTERLEAVED and at.num_micro % depth:
        raise CannotBe(f"the library's interleaved 1F1B needs a multiple of {depth} micro-batches, not {at.num_micro}")


def pipeline(schedule: Schedule, ctx: RankContext, plainly: Plainly, at: Setting, *, replicas: int = 1) -> Subject:
    """A rank's part of a pipeline over all ranks of a replica, which trains on its equal share of the batch."""
    load, depth = at.load, ctx.world_size // replicas
    each = load.batch_size // replicas
    num_stages = depth * schedule.stages_each
    cuts = at.cuts or balanced_cuts(load, num_stages)
    model, stages = cut(load, cuts)
    if not all(isinstance(part, Tensor) for part in load.batch(1, HOST)):
        raise CannotBe("the library's pipelines take one tensor as inputs and one as targets")
    inputs, targets = load.shared(ctx.device, ctx.rank // depth, replicas)
    made = LibraryPipeline(
        {number: stages[number] for number in range(ctx.rank % depth, num_stages, depth)},
        num_stages,
        (inputs, targets),
        schedule=schedule,
        num_micro=at.num_micro,
        device=ctx.device,
        loss=load.loss,
        lr=load.lr,
        group=pipeline_group(ctx, depth),
        replicas=mesh(ctx, replicas).get_group("replica") if replicas > 1 else None,
    )
    whole, num_trained = state_of(model), len(trainable(model))
    places = _places(whole, made.modules)
    parameters = [place for place in places if place < num_trained]
    buffers = [place - num_trained for place in places if place >= num_trained]
    sizes = (each // at.num_micro,) * at.num_micro * replicas
    counts: dict[str, float] = {"updates": 1, "forwards": at.num_micro, "samples": each}
    if not load.exact and replicas == 1 and schedule.stages_each == 1:
        micro = CutWorkload(replace(load, batch_size=sizes[0]), cuts, plainly.counting)
        counts |= {name: at.num_micro * value for name, value in plain_flops(ctx.rank, ctx.device, micro).items()}
        if depth == 2:
            counts["sent bytes"] = crossing(load, cuts, sizes)  # each of the two sends as much as it gets
    return trained(
        at,
        made.step,
        lambda: [whole[place] for place in places],
        lambda: plainly.at(load, sizes)().only(parameters, buffers),
        plainly=plainly,
        modules=made.modules,
        devices=[ctx],
        counts=counts,
    )


def _places(whole: Sequence[Tensor], modules: Sequence[nn.Module]) -> list[int]:
    """Where in the state of the whole model the tensors of these modules are."""
    mine = {id(tensor) for module in modules for tensor in (*module.parameters(), *module.buffers())}
    return [place for place, tensor in enumerate(whole) if id(tensor) in mine]
