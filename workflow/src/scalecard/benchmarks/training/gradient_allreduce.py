"""The exchange of a model's gradients, and nothing else: what DDP could hide behind backward at best."""

from collections.abc import Iterator

from scalecard.distributed.context import RankContext
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.proof import fill, number, same_as, total
from scalecard.parallel.ddp import AllReduceAlone
from scalecard.records.record import Check
from scalecard.workloads.reference import trainable
from scalecard.workloads.workload import HOST, Workload


def alone(ctx: RankContext, workload: Workload) -> Subject:
    """As many bytes as the gradients have, in DDP's buckets; zeros stay finite however often they are added."""
    model = workload.network(HOST, on_meta=True)
    exchange = AllReduceAlone(model, ctx.device)

    def prove() -> Iterator[Check]:
        fill(exchange.flat, lambda places: number(places, ctx.rank))
        exchange.reduce()
        ctx.synchronize()
        name = f"{workload.name}, all-reduce alone: sum, element by element"
        yield same_as(name, exchange.flat, lambda places: total(places, range(ctx.world_size)))
        exchange.flat.zero_()

    size = sum(parameter.nbytes for parameter in trainable(model))
    counts = {"all-reduces": len(exchange.buckets), "all-reduced bytes": size}
    return Subject(work=exchange.reduce, prove=prove, expected=counts, agreeing=lambda: [exchange.flat])
