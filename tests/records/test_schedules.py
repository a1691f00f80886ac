"""Pipeline schedules do what they claim."""

import pytest
from scalecard.records.schedules import SCHEDULES, Action

SIZES = [(1, 1), (2, 1), (2, 3), (3, 7), (4, 4), (4, 2)]


def needed(action: Action, num_stages: int) -> set[Action]:
    """What must be done before an action."""
    forward, stage, micro = action
    if forward:
        return {Action(True, stage - 1, micro)} if stage else set()
    later = {Action(False, stage + 1, micro)} if stage < num_stages - 1 else set()
    return {Action(True, stage, micro), *later}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_everything_is_done_once_and_after_what_it_needs(name: str, p: int, m: int) -> None:
    ticks, done = list(SCHEDULES[name](p, m)), list[Action]()
    for tick in ticks:
        assert len({action.stage for action in tick}) == len(tick), "a stage does one thing at a time"
        for action in tick:
            assert needed(action, p) <= set(done)
        done += tick
    assert sorted(done) == sorted(Action(f, s, k) for f in (True, False) for s in range(p) for k in range(m))
    assert len(ticks) == 2 * (m + p - 1)


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_1f1b_holds_no_more_micro_batches_than_stages_follow(p: int, m: int) -> None:
    held = [0] * p
    for tick in SCHEDULES["1f1b"](p, m):
        for action in tick:
            held[action.stage] += 1 if action.forward else -1
        assert all(count <= p - stage for stage, count in enumerate(held))
    assert held == [0] * p
