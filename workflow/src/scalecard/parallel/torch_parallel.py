"""What PyTorch itself divides over ranks: parameters (FSDP2), layers and stages; and how the ranks are arranged.

    fully_shard        each rank keeps 1/n of every parameter, gradient and optimiser state; whole parameters are
                       gathered block by block, and gradients reduced and scattered
    parallelize_module rank r keeps a share of a layer's outputs ("column") or inputs ("row"), and of no other layer
    pipelining         one or more stages per rank: the library's counterpart to our pipeline
                       rank 0   stage 0, and of an interleaved schedule also stage 2
                       rank 1   stage 1                                  and stage 3

Sources: Zhao et al., PyTorch FSDP (2023); Shoeybi et al., Megatron-LM (2019).
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from scalecard.distributed.context import RankContext
from scalecard.parallel.model_parallel import Loss, average
from scalecard.workloads.nested import Tree

STYLES: Mapping[str, type[Any]] = {"column": ColwiseParallel, "row": RowwiseParallel}
SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved 1f1b": ScheduleInterleaved1F1B}


def sharded(model: nn.Module, blocks: Sequence[nn.Module], mesh: DeviceMesh, *, parameters: bool) -> nn.Module:
    """The model, sharded in place block by block; with two dimensions over the second, and replicated over the first.

    A model on the host is moved as it is sharded, so that a device holds no more than a block of it at a time.
    With `parameters`, whole ones are freed after a block's forward and gathered again for its backward.
    """
    for block in blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=parameters)
    fully_shard(model, mesh=mesh, reshard_after_forward=parameters)
    return model


def gathered_bytes(parameters: Iterable[Tensor], ranks: int) -> int:
    """Bytes of whole parameters as FSDP2 sends them: of each, the rows are padded to a multiple of the ranks."""
    return sum(_padded(tuple(p.shape), ranks) * p.element_size() for p in parameters)


def _padded(shape: tuple[int, ...], ranks: int) -> int:
    rows, *rest = shape or (1,)
    return -(-rows // ranks) * ranks * math.prod(rest)


def divided(model: nn.Module, plan: Mapping[str, str], mesh: DeviceMesh) -> nn.Module:
    """The model with the layers of the plan divided in place. ValueError names what the plan may not say."""
    for name, style in plan.items():
        if style not in STYLES:
            raise ValueError(f"tensor_plan(model)[{name!r}] = {style!r}: must be one of {', '.join(STYLES)}")
        try:
            model.get_submodule(name)
        except AttributeError:
            raise ValueError(f"tensor_plan(model)[{name!r}]: the model has no such layer") from None
    return parallelize_module(model, mesh, {name: STYLES[style]() for name, style in plan.items()})


def whole(tensors: Iterable[Tensor]) -> list[Tensor]:
    """What is divided, put together on every rank, in the host's memory; all of them take part."""
    return [tensor.full_tensor().cpu() if isinstance(tensor, DTensor) else tensor for tensor in tensors]


@functools.cache
def mesh(ctx: RankContext, replicas: int = 1) -> DeviceMesh:
    """All ranks in a row or, with replicas, in as many rows: consecutive ranks, which are close, share a model.

    replicas = 2, 4 ranks     shard 0   shard 1
                  replica 0   rank 0    rank 1
                  replica 1   rank 2    rank 3

    Made once in a process: each has communicators of its own.
    """
    if replicas == 1:
        return init_device_mesh(ctx.device.type, (ctx.world_size,), mesh_dim_names=("shard",))
    ranks = torch.arange(ctx.world_size).view(replicas, -1)
    groups = [ctx.group_among(rows.tolist()) for rows in (ranks.T, ranks)]
    return DeviceMesh.from_group(groups, ctx.device.type, ranks, mesh_dim_names=("replica", "shard"))


class LibraryPipeline:
    """A rank's `stages`, by their number, of `num_stages`; `num_micro` micro-batches must divide the batch evenly.

    `group` are the ranks of one pipeline, as `pipeline_group` makes it. If `replicas` is given, every step averages the
    gradients over those ranks, which have the same stages of other pipelines, and other batches.
    """

    def __init__(
        self,
        stages: Mapping[int, nn.Module],
        num_stages: int,
        batch: tuple[Tree, Tree],
        *,
        schedule: str,
        num_micro: int,
        device: torch.device,
        loss: Loss,
        lr: float,
        group: dist.ProcessGroup,
        replicas: dist.ProcessGroup | None = None,
    ) -> None:
        self.modules, self.replicas = [stage.to(device) for stage in stages.values()], replicas
        made = [PipelineStage(stage, number, num_stages, device, group=group) for number, stage in stages.items()]
        self.schedule = SCHEDULES[schedule](made if len(made) > 1 else made[0], num_micro, loss_fn=loss)
        inputs, targets = batch
        self.first = (inputs,) if 0 in stages else ()
        self.last = {"target": targets} if num_stages - 1 in stages else {}
        self.optimizer = torch.optim.SGD([p for stage in self.modules for p in stage.parameters()], lr=lr)

    def step(self) -> None:
        """One SGD step on the whole batch. The library averages mean losses, so micro-batches must be equal."""
        self.schedule.step(*self.first, **self.last)
        for stage in self.modules:
            if self.replicas:
                average(stage, self.replicas)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def state(self) -> list[Tensor]:
        """These stages' parameters, then their buffers."""
        parameters = [p for stage in self.modules for p in stage.parameters()]
        return parameters + [b for stage in self.modules for b in stage.buffers()]


@functools.cache
def pipeline_group(ctx: RankContext, depth: int) -> dist.ProcessGroup:
    """The `depth` consecutive ranks of this rank's pipeline; made once in a process, and all ranks take part."""
    return ctx.group_among([range(first, first + depth) for first in range(0, ctx.world_size, depth)], lazily=True)
