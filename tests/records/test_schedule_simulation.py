"""A schedule, played: with equal stages it is the closed form, with others what a hand draws."""

import pytest
from scalecard.records.schedules import SCHEDULES, played, played_as_timed


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("p", "m"), [(1, 1), (1, 5), (2, 1), (2, 3), (3, 2), (3, 7), (4, 4), (8, 30)])
def test_equal_stages_make_the_textbooks_bubble(name: str, p: int, m: int) -> None:
    one = played(SCHEDULES[name], [2.0] * p, [3.0] * p, [0.0] * (p - 1), m)
    assert one.makespan == pytest.approx((m + p - 1) * 5)
    assert one.makespan / (m * 5) == pytest.approx((m + p - 1) / m)
    assert one.bubble == pytest.approx((p - 1) / (m + p - 1))
    assert one.busy == pytest.approx([5.0 * m] * p)


def test_gpipe_over_unequal_stages_is_what_its_drawing_shows() -> None:
    """Hand-overs take half a unit: stage 1 begins at 1.5, forwards until 7.5, backwards until 10.5 and 13.5."""
    one = played(SCHEDULES["gpipe"], [1.0, 3.0], [1.0, 3.0], [0.5], 2)
    assert one.makespan == 1.5 + 4 * 3 + 0.5 + 1
    assert one.busy == [4, 12]
    assert one.bubble == 1 - 16 / 30


def test_every_action_has_its_place_in_the_drawing() -> None:
    """Stage 0 gets the gradients of 10.5 and 13.5 half a unit later."""
    one = played(SCHEDULES["gpipe"], [1.0, 3.0], [1.0, 3.0], [0.5], 2, [0.25, 0.75])
    assert {("FB"[not forward], stage, micro): (begin, end) for (forward, stage, micro), begin, end in one.spans} == {
        **{("F", 0, 0): (0, 1), ("F", 0, 1): (1, 2), ("F", 1, 0): (1.5, 4.5), ("F", 1, 1): (4.5, 7.5)},
        **{("B", 1, 0): (7.5, 10.5), ("B", 1, 1): (10.5, 13.5), ("B", 0, 0): (11, 12), ("B", 0, 1): (14, 15)},
    }
    assert one.updates == [0.25, 0.75]


def test_stages_timed_over_a_batch_are_played_by_micro_batch() -> None:
    """Two micro-batches: a backward is half of what forwards and backwards take more, and never less than nothing."""
    schedule, apart = SCHEDULES["gpipe"], ([1.0, 3.0], [2.0, 0.0])
    assert played_as_timed(schedule, [2.0, 6.0], [6.0, 5.0], [0.5], 2, []) == played(schedule, *apart, [0.5], 2)


def test_1f1b_over_unequal_stages() -> None:
    """Stage 0: F0 0-3, F1 3-6, B0 6-9, B1 9-12; stage 1: F0 3-4, B0 4-5, F1 6-7, B1 7-8."""
    one = played(SCHEDULES["1f1b"], [3.0, 1.0], [3.0, 1.0], [0.0], 2)
    assert one.makespan == 12
    assert one.busy == [12, 4]


def test_copies_of_one_direction_follow_one_another() -> None:
    """Each takes 5: the second micro-batch arrives at 11, the first gradient is made at 13, the second back at 23."""
    one = played(SCHEDULES["gpipe"], [1.0, 1.0], [1.0, 1.0], [5.0], 2)
    assert one.makespan == (1 + 5 + 5) + 1 + 1 + 5 + 5 + 1


def test_a_stage_updates_once_its_own_backwards_are_done() -> None:
    """The last stage's update runs beside the first one's backward."""
    beside = played(SCHEDULES["gpipe"], [1.0, 1.0], [2.0, 2.0], [0.0], 1, [0.5, 1.5])
    assert beside.makespan == 1 + 1 + 2 + 2 + 0.5
    assert beside.busy == [3.5, 4.5]
    assert played(SCHEDULES["gpipe"], [1.0, 1.0], [2.0, 2.0], [0.0], 1, [0.5, 9.5]).makespan == 4 + 9.5
