"""What a schedule takes by itself: played with the stages' own times, as if launching and waiting cost nothing.

GPipe, 2 micro-batches, stage 1 three times as slow, a hand-over of half a unit (dots):

    time      0    1    2    3    4    5    6    7    8    9    10   11
    stage 0   F0   F1                                 B0             B1
    stage 1      . F0 F0 F0 F1 F1 F1 B0 B0 B0 B1 B1 B1
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

from scalecard.parallel.schedules import Action, Schedule


@dataclass(frozen=True)
class Played:
    """Seconds until the last action ends, and how long each stage computed."""

    makespan: float
    busy: list[float]

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
    for action in _in_order(schedule, num_stages, num_micro):
        on, (is_forward, stage, micro) = (forward if action.forward else backward), action
        end = max(free[stage], ready.get(action, 0.0)) + on[stage]
        free[stage], busy[stage] = end, busy[stage] + on[stage]
        onward = stage + 1 if is_forward else stage - 1
        if 0 <= onward < num_stages:
            link = is_forward, min(stage, onward)
            links[link] = max(links.get(link, 0.0), end) + transfer[link[1]]
            ready[Action(is_forward, onward, micro)] = links[link]
    last = update or [0.0] * num_stages
    return Played(max(map(sum, zip(free, last, strict=True))), list(map(sum, zip(busy, last, strict=True))))


@cache
def _in_order(schedule: Schedule, num_stages: int, num_micro: int) -> tuple[Action, ...]:
    """What an action waits for is in an earlier tick; its own stage's forward also ran before it on that stage."""
    return tuple(chain.from_iterable(schedule(num_stages, num_micro)))
