"""torch.distributed.pipelining, one or more stages per rank: the library's counterpart to our pipeline.

Ranks are arranged in rows of replicas, and as the stages of pipelines.

rank 0   stage 0, and of an interleaved schedule also stage 2
rank 1   stage 1                                  and stage 3
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from scalecard.distributed.context import RankContext
from scalecard.parallel.model_parallel import average
from scalecard.parallel.step import update
from scalecard.workloads.nested import Tree
from scalecard.workloads.recipe import in_layout
from scalecard.workloads.workload import Workload

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved 1f1b": ScheduleInterleaved1F1B}


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


@functools.cache
def pipeline_group(ctx: RankContext, depth: int) -> dist.ProcessGroup:
    """The `depth` consecutive ranks of this rank's pipeline; made once in a process, and all ranks take part."""
    return ctx.group_among([range(first, first + depth) for first in range(0, ctx.world_size, depth)], lazily=True)


class _Received(torch.autograd.Function):
    """What a stage gets, if it is images perhaps channels last; the gradient that goes back for it is contiguous."""

    @staticmethod
    def forward(_context: Any, values: Tensor, channels_last: bool) -> Tensor:
        laid = in_layout(values, channels_last)
        return laid.view_as(laid)

    @staticmethod
    def backward(_context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.contiguous(), None


def contiguous_stage(forward: Callable[..., Any], channels_last: bool) -> Callable[..., Any]:
    """A stage's forward that hands over contiguous tensors: the library sends no others, and one rank alone fails."""

    def run(stage: nn.Module, values: Tensor) -> Tensor:
        made: Tensor = forward(stage, _Received.apply(values, channels_last))
        return made.contiguous()

    return run


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
        workload: Workload,
        *,
        schedule: str,
        num_micro: int,
        device: torch.device,
        group: dist.ProcessGroup,
        replicas: dist.ProcessGroup | None = None,
    ) -> None:
        self.modules, self.replicas = [stage.to(device) for stage in stages.values()], replicas
        settings = workload.optimizer_settings
        self.group, self.max_norm = group, settings.clip
        made = [PipelineStage(stage, number, num_stages, device, group=group) for number, stage in stages.items()]
        self.schedule = SCHEDULES[schedule](made if len(made) > 1 else made[0], num_micro, loss_fn=workload.loss)
        inputs, targets = batch
        self.first = (inputs,) if 0 in stages else ()
        self.last = {"target": targets} if num_stages - 1 in stages else {}
        self.optimizer = settings.build([p for stage in self.modules for p in stage.parameters()])

    def step(self) -> None:
        """One step on the whole batch. The library averages mean losses, so micro-batches must be equal."""
        self.schedule.step(*self.first, **self.last)
        for stage in self.modules:
            if self.replicas:
                average(stage, self.replicas)
        update(self.optimizer, self.max_norm, self.group)
