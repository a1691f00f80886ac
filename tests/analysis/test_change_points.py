"""When a number changed: planted steps, drifts and outliers are found and told apart; else there is nothing."""

import numpy as np
import pytest
from scalecard.analysis.change_points import CHANCE, Logs, change_points, outliers

NIGHTS = 60


def nights(seed: int, count: int = NIGHTS, *, noise: float = 0.005) -> Logs:
    """Seconds of so many nights, which scatter by the relative `noise`."""
    return np.exp(noise * np.random.default_rng(seed).standard_normal(count))


def stepped(seed: int, at: int, size: float, count: int = NIGHTS) -> list[float]:
    return [*(nights(seed, count) * np.where(np.arange(count) >= at, size, 1.0))]


@pytest.mark.parametrize(("count", "at", "size"), [(17, 14, 1.07), (60, 30, 1.03), (60, 57, 0.95), (90, 60, 1.05)])
def test_a_step_is_found_on_its_night_with_its_size(count: int, at: int, size: float) -> None:
    for seed in range(10):
        (one,) = change_points(stepped(seed, at, size, count), margin=0.02, numbers=60)
        assert abs(one.at - at) <= 1
        assert not one.drift
        assert one.ratio.value == pytest.approx(size, rel=0.01)
        assert one.ratio.interval is not None
        assert one.ratio.interval.low < one.ratio.value < one.ratio.interval.high


def test_two_steps_are_two_even_if_the_second_takes_the_first_back() -> None:
    times = nights(3) * np.where((np.arange(NIGHTS) >= 20) & (np.arange(NIGHTS) < 40), 1.06, 1.0)
    assert [(one.at, round(one.ratio.value, 1)) for one in change_points([*times], margin=0.02)] == [
        (20, 1.1),
        (40, 0.9),
    ]


def test_a_drift_is_no_step() -> None:
    for seed in range(10):
        (one,) = change_points([*(nights(seed) * np.linspace(1, 1.08, NIGHTS))], margin=0.02, numbers=60)
        assert one.drift
        assert one.ratio.value == pytest.approx(1.08, abs=0.01)


def test_outliers_are_told_and_are_no_change() -> None:
    times = nights(5)
    times[[20, 31]] = 1.3, 0.8
    assert outliers([*times]) == [20, 31]
    assert change_points([*times], margin=0.02) == []
    assert outliers(stepped(1, 30, 1.1)) == []


def test_two_slow_nights_at_the_end_are_not_yet_a_change_and_three_are() -> None:
    assert change_points(stepped(1, NIGHTS - 2, 1.1), margin=0.02) == []
    assert [one.at for one in change_points(stepped(1, NIGHTS - 3, 1.1), margin=0.02)] == [NIGHTS - 3]


def test_less_than_the_margin_is_none() -> None:
    assert change_points(stepped(1, 30, 1.015), margin=0.02) == []
    assert change_points(stepped(1, 30, 1.015), margin=0.005)


def test_where_nothing_changed_hardly_anything_is_found() -> None:
    """In 100 sets of 20 numbers; chance allows it in 5 of them."""
    found = [
        any(change_points([*nights(1000 * trial + number)], margin=0.0, numbers=20) for number in range(20))
        for trial in range(100)
    ]
    assert sum(found) <= 2 * 100 * CHANCE


def test_few_nights_and_equal_ones_say_nothing() -> None:
    assert [change_points([1.0] * count, margin=0.02) for count in range(8)] == [[]] * 8
    assert [outliers([1.0] * count) for count in range(8)] == [[]] * 8
