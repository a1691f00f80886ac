"""The predicted share, by curves worked out by hand."""

import pytest
from scalecard.parallel.uneven_data_parallel import predicted_share, swept, time_of

FAST, SLOW = {1: 1.0, 100: 100.0}, {1: 3.0, 100: 300.0}  # 1 and 3 seconds per sample


@pytest.mark.parametrize(
    ("share", "seconds"), [(0, 0.0), (1, 2.0), (2, 3.0), (3, 4.0), (4, 4.0), (6, 4.0), (7, 5.0), (8, 6.0)]
)
def test_a_time_is_linear_between_what_was_measured_and_never_falls(share: int, seconds: float) -> None:
    """By noise five samples took less time than three."""
    assert time_of(share, {8: 6.0, 1: 2.0, 3: 4.0, 5: 3.5, 6: 4.0}) == pytest.approx(seconds)


@pytest.mark.parametrize("share", [1, 9])
def test_no_time_beyond_what_was_measured(share: int) -> None:
    with pytest.raises(ValueError, match=rf"a share of {share} samples .* \[2, 8\]"):
        time_of(share, {2: 1.0, 8: 2.0})


def test_both_finish_at_the_same_time() -> None:
    assert predicted_share(100, FAST, SLOW) == (75, 75.0), "75 at 1 s, 25 at 3 s"
    assert predicted_share(100, SLOW, FAST) == (25, 75.0)
    assert predicted_share(100, FAST, FAST) == (50, 50.0)


def test_what_a_step_costs_besides_its_samples_counts() -> None:
    """40 + n against 3 (100 - n): equal at n = 65, after 105 seconds."""
    assert predicted_share(100, {1: 41.0, 100: 140.0}, SLOW) == (65, 105.0)


def test_a_device_too_slow_for_one_sample_gets_none() -> None:
    assert predicted_share(100, FAST, {1: 100.5, 100: 9000.0}) == (100, 100.0)
    assert predicted_share(100, {1: 100.5, 100: 9000.0}, FAST) == (0, 100.0)
    assert predicted_share(100, FAST, {1: 98.5, 100: 9000.0}) == (99, 99.0), "one sample, just in time"


def test_of_shares_that_finish_equally_early_the_one_that_waits_least() -> None:
    """Whole waves: up to 64 samples take one second, on either device."""
    waves = {1: 1.0, 64: 1.0, 100: 2.0}
    share, seconds = predicted_share(80, waves, {1: 0.5, 64: 1.0, 100: 2.0})
    assert (share, seconds) == (16, 1.0), "64 samples take the second device as long as 16 take the first"


@pytest.mark.parametrize(
    ("predicted", "shares"),
    [
        (0, [1, 2]),
        (1, [1, 2, 3]),
        (25, [20, 24, 25, 28, 32]),
        (24, [16, 20, 24, 28, 32]),
        (99, [80, 96, 99]),
        (100, [80, 96]),
    ],
)
def test_a_prediction_is_swept_with_two_neighbours_on_either_side(predicted: int, shares: list[int]) -> None:
    assert swept(predicted, 100) == shares


def test_predictions_that_differ_a_little_share_their_neighbours() -> None:
    neighbours = [set(swept(predicted, 256)) - {predicted} for predicted in (41, 44, 47)]
    assert neighbours == [{32, 40, 48, 56}] * 3
