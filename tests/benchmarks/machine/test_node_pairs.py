"""Every pair of nodes meets once, and what is measured of them carries their numbers."""

from itertools import combinations

import pytest
from scalecard.benchmarks.machine import collectives
from scalecard.distributed import Layout
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch
from scalecard.hardware.machine import Machine
from scalecard.measuring.stopping_rule import Rule
from scalecard.records.record import Record
from torch.distributed import distributed_c10d


@pytest.mark.parametrize("number", [2, 3, 4, 5, 8, 32])
def test_every_pair_meets_once_and_nobody_plays_twice_in_a_round(number: int) -> None:
    rounds = collectives.rounds(number)
    met = [tuple(sorted(pair)) for turn in rounds for pair in turn]
    assert sorted(met) == list(combinations(range(number), 2))
    for turn in rounds:
        playing = [node for pair in turn for node in pair]
        assert len(playing) == len(set(playing))
    assert len(rounds) == (number if number % 2 else number - 1)


def pretend_nodes(ctx: RankContext, rule: Rule) -> list[Record]:
    """Four ranks as if each pair of them were a node."""
    ctx.layout = Layout(4, 2)
    before = len(distributed_c10d._world.pg_map)
    found = list(collectives.of_nodes(ctx, rule, 4096))
    assert len(distributed_c10d._world.pg_map) == before, "every group is given back"
    return found


@pytest.mark.usefixtures("forked_ranks")
def test_nodes_and_pairs_are_measured_side_by_side(machine: Machine, rule: Rule) -> None:
    found = launch(pretend_nodes, rule, layout=Layout(4), machine=machine)[0]
    cases = [{key: record.case.get(key) for key in ("part", "node", "other", "devices")} for record in found]
    assert cases == [
        {"part": "node", "node": 0, "other": None, "devices": 2},
        {"part": "node", "node": 1, "other": None, "devices": 2},
        {"part": "node pair", "node": 0, "other": 1, "devices": 4},
    ]
    for record in found:
        assert record.samples[0]
        assert [check.passed for check in record.checks] == [True]
