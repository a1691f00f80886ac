"""torch.distributed.pipelining's schedules for any workload, one or two stages per rank; replicas average gradients."""

from collections.abc import Sequence

from torch import Tensor, nn

from scalecard.distributed.context import RankContext
from scalecard.measuring.variant import Subject
from scalecard.strategies.mesh import mesh
from scalecard.strategies.plainly import Plainly, Setting
from scalecard.strategies.staged import HOST, crossing, cut
from scalecard.strategies.strategy import CannotBe, trained
from scalecard.training.library_pipeline import STAGES_EACH, LibraryPipeline
from scalecard.training.step import state_of
from scalecard.training.trees import share


def suits(schedule: str, replicas: int, at: Setting) -> None:
    """CannotBe if the library's schedule cannot take these micro-batches."""
    each, depth = at.load.batch_size // replicas, at.devices // replicas
    if each % at.num_micro:
        raise CannotBe(f"the library needs equal micro-batches: {at.num_micro} do not divide {each} samples")
    if schedule != "gpipe" and at.num_micro < depth:
        raise CannotBe(f"the library's 1F1B needs at least {depth} micro-batches, and the batch makes {at.num_micro}")
    if schedule in STAGES_EACH and at.num_micro % depth:
        raise CannotBe(f"the library's interleaved 1F1B needs a multiple of {depth} micro-batches, not {at.num_micro}")


def pipeline(schedule: str, ctx: RankContext, plainly: Plainly, at: Setting, *, replicas: int = 1) -> Subject:
    """A rank's part of a pipeline over all ranks of a replica, which trains on its equal share of the batch."""
    load, depth = at.load, ctx.world_size // replicas
    each = load.batch_size // replicas
    num_stages = depth * STAGES_EACH.get(schedule, 1)
    model, stages = cut(load, num_stages)
    if not all(isinstance(part, Tensor) for part in load.batch(1, HOST)):
        raise CannotBe("the library's pipelines take one tensor as inputs and one as targets")
    places = [id(tensor) for tensor in state_of(model)[: _trained(model)]]
    inputs, targets = (share(part, ctx.rank // depth, replicas) for part in load.batch(load.batch_size, ctx.device))
    ranks = mesh(ctx, replicas)
    made = LibraryPipeline(
        {number: stages[number] for number in range(ctx.rank % depth, num_stages, depth)},
        num_stages,
        (inputs, targets),
        schedule=schedule,
        num_micro=at.num_micro,
        device=ctx.device,
        loss=load.loss,
        lr=load.lr,
        group=ranks.get_group("shard"),
        replicas=ranks.get_group("replica") if replicas > 1 else None,
    )
    parameters, buffers = _indices(model, places, made.modules)
    sizes = (each // at.num_micro,) * at.num_micro * replicas
    counts: dict[str, float] = {"updates": 1, "forwards": at.num_micro}
    if not load.exact and replicas == 1 and schedule not in STAGES_EACH and depth == 2:
        counts["sent bytes"] = crossing(load, num_stages, sizes)  # each of the two sends as much as it gets
    return trained(
        at,
        made.step,
        lambda: [state_of(model)[index] for index in (*parameters, *(len(places) + index for index in buffers))],
        lambda: plainly.at(load, sizes)().only(parameters, buffers),
        plainly=plainly,
        modules=made.modules,
        devices=[ctx],
        counts=counts,
    )


def _trained(model: nn.Module) -> int:
    return sum(p.requires_grad for p in model.parameters())


def _indices(model: nn.Module, places: Sequence[int], modules: Sequence[nn.Module]) -> tuple[list[int], list[int]]:
    """Where in the whole model's state the tensors of these modules are: trained parameters, and the others."""
    mine = {id(tensor) for module in modules for tensor in (*module.parameters(), *module.buffers())}
    others: list[Tensor] = state_of(model)[len(places) :]
    return (
        [index for index, tensor in enumerate(places) if tensor in mine],
        [index for index, tensor in enumerate(others) if id(tensor) in mine],
    )
