"""Pipeline schedules as generators of clock ticks; the actions of one tick run side by side.

GPipe, 2 stages, 3 micro-batches (F1 = forward of micro-batch 1):

    tick      0    1    2    3    4    5    6    7
    stage 0   F0   F1   F2                  B0   B1   B2       all forwards, then all backwards:
    stage 1        F0   F1   F2   B0   B1   B2                 every micro-batch's activations are held
                                       ^ stage 0 starts B0 one tick after stage 1 ended it

1F1B, 2 stages, 3 micro-batches:

    tick      0    1    2    3    4    5    6    7
    stage 0   F0   F1        B0   F2   B1        B2            at most `num_stages` micro-batches are held
    stage 1        F0   B0   F1   B1   F2   B2

Both need the same number of ticks; 1F1B needs less memory.

Sources: Huang et al., GPipe (2019); Narayanan et al., PipeDream-2BW / Megatron-LM (2021).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple


class Action(NamedTuple):
    """One forward or backward of one micro-batch on one stage."""

    forward: bool
    stage: int
    micro: int


Tick = list[Action]
Schedule = Callable[[int, int], Iterator[Tick]]


def gpipe(num_stages: int, num_micro: int) -> Iterator[Tick]:
    """All forwards along the diagonals, then all backwards along the mirrored ones."""
    for forward in (True, False):
        for clock in range(num_stages + num_micro - 1):
            delays = [(s, clock - (s if forward else num_stages - 1 - s)) for s in range(num_stages)]
            yield [Action(forward, s, micro) for s, micro in delays if 0 <= micro < num_micro]


def one_f_one_b(num_stages: int, num_micro: int) -> Iterator[Tick]:
    """Each stage starts with (num_stages - its index) forwards, then takes a backward as soon as one is ready."""
    todo = [_one_stage(s, num_stages, num_micro) for s in range(num_stages)]
    done: set[Action] = set()
    while any(todo):
        tick = [actions[0] for actions in todo if actions and _ready(actions[0], num_stages, done)]
        assert tick, "a schedule never waits for itself"
        for action in tick:
            todo[action.stage].pop(0)
        done.update(tick)
        yield tick


def _one_stage(stage: int, num_stages: int, num_micro: int) -> list[Action]:
    fill = min(num_stages - stage, num_micro)
    order = [Action(True, stage, m) for m in range(fill)]
    for m in range(num_micro):
        order.append(Action(False, stage, m))
        if m + fill < num_micro:
            order.append(Action(True, stage, m + fill))
    return order


def _ready(action: Action, num_stages: int, done: set[Action]) -> bool:
    if action.forward:
        return action.stage == 0 or Action(True, action.stage - 1, action.micro) in done
    last = action.stage == num_stages - 1
    return Action(True, action.stage, action.micro) in done and (
        last or Action(False, action.stage + 1, action.micro) in done
    )


SCHEDULES: dict[str, Schedule] = {"gpipe": gpipe, "1f1b": one_f_one_b}
