"""How ranks are arranged: in rows of replicas, and as the stages of pipelines."""

import functools

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from scalecard.distributed.context import RankContext


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
