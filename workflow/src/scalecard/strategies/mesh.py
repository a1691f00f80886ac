"""How ranks are arranged for strategies that divide in two ways."""

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from scalecard.distributed.context import RankContext


def mesh(ctx: RankContext, replicas: int = 1) -> DeviceMesh:
    """All ranks in a row or, with replicas, in as many rows: consecutive ranks, which are close, share a model.

    replicas = 2, 4 ranks     shard 0   shard 1
                  replica 0   rank 0    rank 1
                  replica 1   rank 2    rank 3
    """
    shape, names = (ctx.world_size,), ("shard",)
    if replicas > 1:
        return init_device_mesh(
            ctx.device.type, (replicas, ctx.world_size // replicas), mesh_dim_names=("replica", "shard")
        )
    return init_device_mesh(ctx.device.type, shape, mesh_dim_names=names)
