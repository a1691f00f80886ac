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
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.whole_numbers import fill, number, same_as, total
from scalecard.records.record import Check

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")


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
        prove=partial(_checks, ctx, collective, works[collective], given, got if len(got) else given, part),
        expected={"collectives": 1, "collective bytes": 4 * whole},
    )


def _checks(
    ctx: RankContext, collective: str, work: Callable[[], object], given: Tensor, result: Tensor, part: int
) -> Iterator[Check]:
    """The call that is timed on other whole numbers on each rank, and each value that this rank gets.

    What is timed are zeros, which stay finite however often they are added.
    """
    ranks, first = ctx.world_size, ctx.rank * part
    wanted: dict[str, Callable[[Tensor], Tensor]] = {
        "all_reduce": lambda places: total(places, range(ranks)),
        "all_gather": lambda places: number(places % part, places // part),
        "reduce_scatter": lambda places: total(first + places, range(ranks)),
        "all_to_all": lambda places: number(first + places % part, places // part),
        "broadcast": lambda places: number(places, 0),
    }
    result.zero_()  # of an earlier call
    fill(given, lambda places: number(places, ctx.rank))
    work()
    ctx.synchronize()
    yield same_as(f"{collective} on {ranks} ranks, element by element", result, wanted[collective])
    for tensor in (given, result):
        tensor.zero_()
