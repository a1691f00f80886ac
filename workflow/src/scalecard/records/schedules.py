"""Schedules of pipelines: generators of clock ticks, the actions of one of which run side by side.

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

What a schedule takes by itself: played with the stages' own times, as if launching and waiting cost nothing.

GPipe, 2 micro-batches, stage 1 three times as slow, a hand-over of half a unit (dots):

    time      0    1    2    3    4    5    6    7    8    9    10   11
    stage 0   F0   F1                                 B0             B1
    stage 1      . F0 F0 F0 F1 F1 F1 B0 B0 B0 B1 B1 B1
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
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
    """Once the stage before it or, of a backward, the one after it has handed its result over."""
    giver = action._replace(stage=action.stage + (-1 if action.forward else 1))
    return giver in done or not 0 <= giver.stage < num_stages


SCHEDULES: dict[str, Schedule] = {"gpipe": gpipe, "1f1b": one_f_one_b}


class Span(NamedTuple):
    """When an action runs, in seconds from the beginning of a step."""

    action: Action
    begin: float
    end: float


@dataclass(frozen=True)
class Played:
    """Seconds until the last action or update ends, how long each stage computed, and when it took each action.

    Each stage's update follows its last action.
    """

    makespan: float
    busy: list[float]
    spans: list[Span]
    updates: list[float]

    @property
    def bubble(self) -> float:
        """The share of the time in which stages idle: (p - 1)/(m + p - 1) if all are equal and nothing is copied."""
        return 1 - sum(self.busy) / (len(self.busy) * self.makespan)


def played(
    schedule: Schedule,
    forward: Sequence[float],
    backward: Sequence[float],
    transfer: Sequence[float],
    num_micro: int,
    update: Sequence[float] = (),
) -> Played:
    """Each stage takes its actions in the schedule's order, and each begins once the stage is free and its input there.

    `forward` and `backward` are the seconds that each stage takes for a micro-batch, `transfer` those that its output
    takes to the next stage, and the gradient back; so it has one value less. Copies run beside what is computed, in
    each direction one after the other. A stage ends with its `update`, if one is given. For equal stages without
    transfers and updates, all is done after (m + p - 1)(forward + backward): m micro-batches, p stages.

    Source: the simulation is that of a list schedule; the ideal that it generalises is GPipe's (Huang et al., 2019,
    section 2.3).
    """
    num_stages = len(forward)
    free, busy = [0.0] * num_stages, [0.0] * num_stages
    links: dict[tuple[bool, int], float] = {}
    ready: dict[Action, float] = {}  # when its input has arrived
    spans: list[Span] = []
    for action in chain.from_iterable(schedule(num_stages, num_micro)):  # what one waits for is in an earlier tick
        on, (is_forward, stage, micro) = (forward if action.forward else backward), action
        begin = max(free[stage], ready.get(action, 0.0))
        end = begin + on[stage]
        spans.append(Span(action, begin, end))
        free[stage], busy[stage] = end, busy[stage] + on[stage]
        onward = stage + 1 if is_forward else stage - 1
        if 0 <= onward < num_stages:
            link = is_forward, min(stage, onward)
            links[link] = max(links.get(link, 0.0), end) + transfer[link[1]]
            ready[Action(is_forward, onward, micro)] = links[link]
    last = list(update) or [0.0] * num_stages
    ends, whole = ([a + b for a, b in zip(sums, last, strict=True)] for sums in (free, busy))
    return Played(max(ends), whole, spans, last)


def played_as_timed(
    schedule: Schedule,
    forwards: Sequence[float],
    both: Sequence[float],
    transfer: Sequence[float],
    num_micro: int,
    update: Sequence[float],
) -> Played:
    """The same from what is timed of each stage alone: all forwards of a batch, and all forwards and backwards.

    A backward is what both take more than the forwards.
    """
    forward = [seconds / num_micro for seconds in forwards]
    backward = [max(0.0, b - f) / num_micro for f, b in zip(forwards, both, strict=True)]
    return played(schedule, forward, backward, transfer, num_micro, update)
