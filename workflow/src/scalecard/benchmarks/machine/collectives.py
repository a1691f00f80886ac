"""The collectives that training uses on all ranks, and all-reduces within each node and between every two nodes.

Proven with whole numbers whose result is known. Sizes and rates are nccl-tests' (doc/PERFORMANCE.md there): S is what
each rank puts in, or for all_gather what it gets.

    collective       each rank puts in        each rank gets              bus bandwidth
    all_reduce       S                        the sum, S                  S / t * 2 (n - 1) / n
    all_gather       S / n                    all parts, S                S / t * (n - 1) / n
    reduce_scatter   S                        its part of the sum, S / n  S / t * (n - 1) / n
    all_to_all       S, a part for each       a part of each, S           S / t * (n - 1) / n
    broadcast        S, of rank 0             S                           S / t

Nodes are measured by themselves, then in pairs, n/2 at a time, so that a slow node or cable gets a name: each round
pairs every node with another one, as in a round-robin tournament (the circle method). Node 0 stays, the others go
round; with an odd number of nodes, one rests in each round.

    round 0    0-3  1-2        round 1    0-2  3-1        round 2    0-1  2-3
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

import torch
import torch.distributed as dist
from torch import Tensor

from scalecard import progress
from scalecard.distributed.context import RankContext
from scalecard.measuring.case_variant import Subject, Variant, Work
from scalecard.measuring.interleaved_timing import round_records
from scalecard.measuring.prepare import guarded
from scalecard.measuring.proof import Value, fill, number, same_as, total
from scalecard.measuring.stopping_rule import Rule
from scalecard.records.axes import Case
from scalecard.records.record import Check, Record

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")


def subject(ctx: RankContext, collective: str, size: int) -> Subject:
    """`size` is S in bytes, of float32 values; it is rounded down to a multiple of what the ranks share equally."""
    ranks, part = ctx.world_size, size // 4 // ctx.world_size
    whole, first = part * ranks, ctx.rank * part
    lengths = {"all_gather": (part, whole), "reduce_scatter": (whole, part), "all_to_all": (whole, whole)}
    given, got = (torch.zeros(length, device=ctx.device) for length in lengths.get(collective, (whole, 0)))
    calls: dict[str, tuple[Callable[..., object], Value]] = {  # and what each rank gets
        "all_reduce": (partial(dist.all_reduce, given), lambda at: total(at, range(ranks))),
        "all_gather": (partial(dist.all_gather_into_tensor, got, given), lambda at: number(at % part, at // part)),
        "reduce_scatter": (partial(dist.reduce_scatter_tensor, got, given), lambda at: total(first + at, range(ranks))),
        "all_to_all": (partial(dist.all_to_all_single, got, given), lambda at: number(first + at % part, at // part)),
        "broadcast": (partial(dist.broadcast, given, group_src=0), lambda at: number(at, 0)),
    }
    call, wanted = calls[collective]
    work = partial(call, group=ctx.group)
    return Subject(
        work=work,
        prove=partial(_checks, ctx, f"{collective} on {ranks} ranks", work, given, got if len(got) else given, wanted),
        expected={"collectives": 1, "collective bytes": 4 * whole},
    )


def gradients_alone(ctx: RankContext, name: str, parameters: Sequence[Tensor], *, bucket_bytes: int) -> Subject:
    """The exchange of a model's gradients in buckets, and nothing else: what DDP could hide behind backward at best."""
    # As many bytes, rounded up, in float32, whose sums can be proven, whatever the parameters are.
    num_bytes = 4 * math.ceil(sum(p.nbytes for p in parameters) / 4)
    flat = torch.zeros(num_bytes // 4, device=ctx.device)
    buckets = flat.split(bucket_bytes // flat.element_size())

    def work() -> None:
        for started in [dist.all_reduce(bucket, async_op=True) for bucket in buckets]:
            started.wait()

    def wanted(places: Tensor) -> Tensor:
        return total(places, range(ctx.world_size))

    return Subject(
        work=work,
        prove=partial(_checks, ctx, f"{name}, all-reduce alone: sum", work, flat, flat, wanted),
        expected={"all-reduces": -(-num_bytes // bucket_bytes), "all-reduced bytes": num_bytes},
        agreeing=lambda: [flat],
    )


def _checks(ctx: RankContext, name: str, work: Work, given: Tensor, result: Tensor, wanted: Value) -> Iterator[Check]:
    """The call that is timed on other whole numbers on each rank, and each value that this rank gets.

    What is timed are zeros, which stay finite however often they are added.
    """
    result.zero_()  # of an earlier call
    fill(given, lambda places: number(places, ctx.rank))
    work()
    ctx.synchronize()
    yield same_as(f"{name}, element by element", result, wanted)
    for tensor in (given, result):
        tensor.zero_()


def rounds(count: int) -> list[list[tuple[int, int]]]:
    """Every pair of so many nodes once, in as few rounds as possible."""
    places: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    half, found = len(places) // 2, []
    for _ in range(len(places) - 1):
        facing = zip(places[:half], reversed(places[half:]), strict=True)
        found.append([(a, b) for a, b in facing if a is not None and b is not None])
        places = [places[0], places[-1], *places[1:-1]]
    return found


def of_nodes(ctx: RankContext, rule: Rule, size: int) -> Iterator[Record]:
    """What rank 0 keeps: all-reduces of so many bytes, within every node and then between its pairs."""
    each = ctx.world_size // ctx.layout.nodes
    alone = [(node,) for node in range(ctx.layout.nodes)]
    turns: list[Sequence[tuple[int, ...]]] = [alone, *rounds(ctx.layout.nodes)]
    for turn in progress.cases(turns, label=lambda turn: ", ".join("-".join(map(str, nodes)) for nodes in turn)):
        own: list[Record] = []
        groups = [(nodes, ctx.among([node * each + i for node in nodes for i in range(each)])) for nodes in turn]
        for nodes, group in groups:
            if group:
                case: Case = {"part": "node", "node": nodes[0], "devices": group.world_size, "bytes": size}
                if len(nodes) > 1:
                    case |= {"part": "node pair", "other": nodes[1]}
                measured = [*guarded(timed(group, rule, "all_reduce", size, case), case)]
                own = measured if group.leads else []
                group.leave()  # of 32 nodes there are 528 groups, and NCCL keeps memory on the GPU for each
        ctx.barrier()
        yield from chain.from_iterable(ctx.all_gather(own))


def timed(ctx: RankContext, rule: Rule, collective: str, size: int, case: Case) -> Iterator[Record]:
    """The time of a collective on these ranks."""
    variant = Variant(name=collective, case=case, build=partial(subject, ctx, collective), timed_at=size)
    return round_records([variant], devices=[ctx], rule=rule, ranks=ctx)
