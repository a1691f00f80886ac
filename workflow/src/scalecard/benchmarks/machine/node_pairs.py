"""Every node by itself, then every pair of nodes, n/2 pairs at a time: a slow node or cable gets a name.

Each round pairs every node with another one, as in a round-robin tournament (the circle method): node 0 stays, the
others go round. With an odd number of nodes, one rests in each round.

    round 0    0-3  1-2        round 1    0-2  3-1        round 2    0-1  2-3
"""

from collections.abc import Iterator, Sequence
from functools import partial

from scalecard import progress
from scalecard.benchmarks.machine import collectives
from scalecard.distributed.context import RankContext
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.failures import guarded
from scalecard.measuring.interleaved_timing import time_rounds
from scalecard.measuring.stopping_rule import Rule
from scalecard.records.record import Case, Record


def rounds(number: int) -> list[list[tuple[int, int]]]:
    """Every pair of so many nodes once, in as few rounds as possible."""
    places: list[int | None] = [*range(number), *([None] if number % 2 else [])]
    found = []
    for _ in range(len(places) - 1):
        half = len(places) // 2
        facing = zip(places[:half], reversed(places[half:]), strict=True)
        found.append([(a, b) for a, b in facing if a is not None and b is not None])
        places = [places[0], places[-1], *places[1:-1]]
    return found


def records(ctx: RankContext, rule: Rule, sizes: Sequence[int]) -> Iterator[Record]:
    """What rank 0 keeps: all-reduces of these sizes in bytes, within every node and then between its pairs."""
    each = ctx.world_size // ctx.layout.nodes
    alone = [(node,) for node in range(ctx.layout.nodes)]
    turns: list[Sequence[tuple[int, ...]]] = [alone, *rounds(ctx.layout.nodes)]
    for turn in progress.cases(turns, label=lambda turn: ", ".join("-".join(map(str, nodes)) for nodes in turn)):
        own: list[Record] = []
        groups = [(nodes, ctx.among([node * each + i for node in nodes for i in range(each)])) for nodes in turn]
        for nodes, group in groups:
            if group:
                own = [record for size in sizes for record in _one(group, rule, nodes, size)]
                group.leave()  # of 32 nodes there are 528 groups, and NCCL keeps memory on the GPU for each
        ctx.barrier()
        everywhere: list[list[Record]] = ctx.all_gather(own)
        yield from (record for records in everywhere for record in records)


def _one(group: RankContext, rule: Rule, nodes: tuple[int, ...], size: int) -> list[Record]:
    case: Case = {"part": "node", "node": nodes[0], "devices": group.world_size, "bytes": size}
    if len(nodes) > 1:
        case |= {"part": "node pair", "other": nodes[1]}
    variant = Variant(name="all_reduce", case=case, build=partial(_subject, group, size))
    measured = [*guarded(_timed(group, rule, variant), case)]
    return measured if group.leads else []


def _subject(group: RankContext, size: int, _at: None) -> Subject:
    return collectives.subject(group, "all_reduce", size)


def _timed(group: RankContext, rule: Rule, variant: Variant) -> Iterator[Record]:
    for timing in time_rounds([variant], devices=[group], rule=rule, ranks=group):
        yield timing.record()
