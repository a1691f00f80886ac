"""Where blocks are cut into stages: no other cut has a faster slowest stage."""

import itertools
import random

import pytest
from scalecard.workloads.stage_cuts import balanced, stages


def slowest(times: list[float], cuts: tuple[int, ...]) -> float:
    return max(sum(times[block] for block in stage) for stage in stages(len(times), cuts))


@pytest.mark.parametrize("seed", range(40))
def test_no_other_cut_is_better(seed: int) -> None:
    draw = random.Random(seed)
    times = [draw.choice([0.0, 1.0, draw.random(), 10 * draw.random()]) for _ in range(draw.randint(1, 9))]
    for count in range(1, len(times) + 1):
        every = itertools.combinations(range(1, len(times)), count - 1)
        cuts = balanced(times, count)
        assert len(cuts) == count - 1
        assert list(cuts) == sorted(set(cuts))
        assert slowest(times, cuts) == pytest.approx(min(slowest(times, other) for other in every))


def test_a_cut_worked_out_by_hand() -> None:
    """8 and 10; one block more or less in the first stage makes 14 or 12."""
    assert balanced([5, 1, 2, 6, 3, 1], 2) == (3,)
    assert balanced([1, 1, 1, 9, 1, 1], 3) == (3, 4)
    assert [list(stage) for stage in stages(6, (3,))] == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("num_stages", [0, 4])
def test_more_stages_than_blocks_are_refused(num_stages: int) -> None:
    with pytest.raises(ValueError, match=rf"num_stages = {num_stages}: 3 blocks"):
        balanced([1, 2, 3], num_stages)
