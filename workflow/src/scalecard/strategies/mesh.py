"""How ranks are arranged for strategies that divide in two ways."""

import functools

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from scalecard.distributed.context import RankContext


@functools.cache
def _made(device: str, shape: tuple[int, ...], names: tuple[str, ...]) -> DeviceMesh:
    """Once in a process: each has communicators of its own."""
    return init_device_mesh(device, shape, mesh_dim_names=names)


def mesh(ctx: RankContext, replicas: int = 1) -> DeviceMesh:
    """All ranks in a row or, with replicas, in as many rows: consecutive ranks, which are close, share a model.

    replicas = 2, 4 ranks     shard 0   shard 1
                  replica 0   rank 0    rank 1
                  replica 1   rank 2    rank 3
    """
    if replicas == 1:
        return _made(ctx.device.type, (ctx.world_size,), ("shard",))
    return _made(ctx.device.type, (replicas, ctx.world_size // replicas), ("replica", "shard"))
