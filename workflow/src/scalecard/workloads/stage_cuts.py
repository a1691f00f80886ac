"""Where to cut a chain of blocks into stages: such that the slowest stage is as fast as possible.

blocks     5   1   2   6   3   1          each number is a block's time
stages   | 5   1   2 | 6   3   1 |        8 and 10; no other cut has a smaller largest stage
"""

import itertools
from collections.abc import Sequence

Cuts = tuple[int, ...]  # the blocks with which the second, third ... stage begin


def balanced(times: Sequence[float], num_stages: int) -> Cuts:
    """The contiguous partition of the blocks into so many stages whose largest sum is smallest; of several, the first.

    `times` are the blocks', in any unit; every stage has at least one. Exact, by dynamic programming over the best
    largest sum of the first blocks in so many stages: O(num_stages * len(times)^2). ValueError if that many stages
    cannot be made of the blocks.

    Source: Skiena, The Algorithm Design Manual (3rd ed., 2020), section 10.7, "The Ordered Partition Problem"; so does
    PipeDream's optimiser cut a model without replicas (Narayanan et al., SOSP 2019, section 3.1).
    """
    if not 1 <= num_stages <= len(times):
        raise ValueError(f"num_stages = {num_stages}: {len(times)} blocks make at least 1 and at most {len(times)}")
    ends = [0.0, *itertools.accumulate(times)]
    best: dict[int, tuple[float, Cuts]] = {count: (end, ()) for count, end in enumerate(ends)}  # in one stage
    for stages in range(2, num_stages + 1):
        best = {
            count: min((max(best[cut][0], end - ends[cut]), (*best[cut][1], cut)) for cut in range(stages - 1, count))
            for count, end in enumerate(ends)
            if count >= stages
        }
    return best[len(times)][1]


def stages(num_blocks: int, cuts: Cuts) -> list[range]:
    """The blocks of each stage."""
    return [range(start, end) for start, end in itertools.pairwise((0, *cuts, num_blocks))]
