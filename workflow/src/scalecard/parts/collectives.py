"""The collectives that training uses, on the ranks of a launch, with whole numbers whose result is known.

Sizes and rates are nccl-tests' (doc/PERFORMANCE.md there): S is what each rank puts in, or for all_gather what it gets.

    collective       each rank puts in        each rank gets              bus bandwidth
    all_reduce       S                        the sum, S                  S / t * 2 (n - 1) / n
    all_gather       S / n                    all parts, S                S / t * (n - 1) / n
    reduce_scatter   S                        its part of the sum, S / n  S / t * (n - 1) / n
    all_to_all       S, a part for each       a part of each, S           S / t * (n - 1) / n
    broadcast        S, of rank 0             S                           S / t
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from scalecard.distributed.context import RankContext
from scalecard.measuring.proof import same_values
from scalecard.measuring.variant import Subject
from scalecard.records.record import Check

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
PERIOD = 251  # of the whole numbers: a prime, so that parts of equal length differ; sums of 65,000 ranks are exact


def subject(ctx: RankContext, collective: str, size: int) -> Subject:
    """`size` is S in bytes, of float32 values; it is rounded down to a multiple of what the ranks share equally."""
    part = size // 4 // ctx.world_size
    whole = part * ctx.world_size
    lengths = {"all_gather": (part, whole), "reduce_scatter": (whole, part), "all_to_all": (whole, whole)}
    given, got = (torch.zeros(length, device=ctx.device) for length in lengths.get(collective, (whole, 0)))
    works: dict[str, Callable[[], object]] = {
        "all_reduce": partial(dist.all_reduce, given, group=ctx.group),
        "all_gather": partial(dist.all_gather_into_tensor, got, given, group=ctx.group),
        "reduce_scatter": partial(dist.reduce_scatter_tensor, got, given, group=ctx.group),
        "all_to_all": partial(dist.all_to_all_single, got, given, group=ctx.group),
        "broadcast": partial(dist.broadcast, given, group=ctx.group, group_src=0),
    }
    return Subject(
        work=works[collective],
        prove=partial(_checks, ctx, collective, works[collective], given, got if len(got) else given),
        expected={"collectives": 1, "collective bytes": 4 * whole},
        state=lambda: [given, got],
    )


def _checks(
    ctx: RankContext, collective: str, work: Callable[[], object], given: Tensor, result: Tensor
) -> Iterator[Check]:
    """The call that is timed on other whole numbers on each rank, and each value that this rank gets."""
    ranks, part = ctx.world_size, max(1, len(given) // ctx.world_size)
    mine = slice(ctx.rank * part, (ctx.rank + 1) * part)
    values = torch.arange(len(given)) % PERIOD
    total = ranks * values + sum(range(ranks))
    wanted = {
        "all_reduce": lambda: total,
        "all_gather": lambda: torch.cat([values + rank for rank in range(ranks)]),
        "reduce_scatter": lambda: total[mine],
        "all_to_all": lambda: torch.cat([values[mine] + rank for rank in range(ranks)]),
        "broadcast": lambda: values,
    }[collective]()
    result.zero_()  # of an earlier call
    given.copy_(values + ctx.rank)
    work()
    ctx.synchronize()
    yield same_values(f"{collective} on {ranks} ranks, element by element", result, wanted.float())
