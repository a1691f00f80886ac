"""The exchange of a model's gradients, and nothing else: what DDP could hide behind backward at best."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from scalecard.distributed.context import RankContext
from scalecard.measuring.proof import same_values
from scalecard.measuring.variant import Subject
from scalecard.records.record import Check
from scalecard.training.ddp import AllReduceAlone


def alone(name: str, model: nn.Module, ctx: RankContext) -> Subject:
    """As many bytes as the gradients have, in DDP's buckets; zeros stay finite however often they are added."""
    exchange = AllReduceAlone(model, ctx.device)

    def prove() -> Iterator[Check]:
        ranks, values = ctx.world_size, torch.arange(len(exchange.flat), dtype=torch.float32) % 251
        exchange.flat.copy_(values + ctx.rank)
        exchange.reduce()
        ctx.synchronize()
        total = ranks * values + sum(range(ranks))
        yield same_values(f"{name}, all-reduce alone: sum, element by element", exchange.flat, total)

    def state() -> list[Tensor]:
        return [exchange.flat]

    size = sum(parameter.nbytes for parameter in model.parameters() if parameter.requires_grad)
    counts = {"all-reduces": len(exchange.buckets), "all-reduced bytes": size}
    return Subject(work=exchange.reduce, prove=prove, expected=counts, state=state, agreeing=state)
