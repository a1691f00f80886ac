"""The interval of the median, and the verdict on a ratio."""

import math
import random

import pytest
from scalecard.records.statistics import Interval, Ratio, between, median_interval, paired_ratio, unpaired_ratio


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    draw = random.Random(1)
    hits = 0
    for _ in range(400):
        interval = median_interval([draw.gauss(10, 2) for _ in range(25)])
        assert interval is not None
        hits += interval.low <= 10 <= interval.high
    assert 0.93 <= hits / 400 <= 0.995


@pytest.mark.parametrize(("count", "exists"), [(1, False), (5, False), (6, True)])
def test_an_interval_needs_six_samples(count: int, exists: bool) -> None:
    assert (median_interval([float(i) for i in range(count)]) is not None) == exists


@pytest.mark.parametrize(("count", "exists"), [(1, False), (2, True), (6, True)])
def test_an_interval_between_processes_needs_two(count: int, exists: bool) -> None:
    assert (between([[1.0 + i] for i in range(count)]) is not None) == exists


def test_pairing_cancels_drift_that_hides_a_difference() -> None:
    drift = [1 + 0.02 * i for i in range(30)]
    old, new = drift, [1.03 * d for d in drift]
    assert paired_ratio([new], [old]).verdict == "slower"
    assert unpaired_ratio([new], [old]).verdict == "unclear"
    assert paired_ratio([new], [old]).value == pytest.approx(1.03)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.90, 0.95, "faster"),
        (1.05, 1.10, "slower"),
        (0.995, 1.005, "same"),
        (0.98, 1.05, "unclear"),
        (0.97, 0.995, "unclear"),
    ],
)
def test_a_verdict_needs_the_whole_interval_beyond_the_margin(low: float, high: float, verdict: str) -> None:
    assert Ratio(math.sqrt(low * high), Interval(low, high)).verdict == verdict


def test_without_an_interval_the_verdict_is_unclear() -> None:
    assert Ratio(0.5, None).verdict == "unclear"


def test_more_processes_never_tell_less() -> None:
    """Of many processes some are noisy; what few of them show is not hidden by sixty."""
    draw = random.Random(2)

    def processes(count: int, centre: float) -> list[list[float]]:
        noise = [0.05 if number % 3 == 2 else 0.005 for number in range(count)]
        return [[centre * math.exp(draw.gauss(0, sd)) for _ in range(24)] for sd in noise]

    for count in (15, 30, 60):
        assert unpaired_ratio(processes(count, 1.05), processes(count, 1)).verdict_at(0.02) == "slower"
        assert unpaired_ratio(processes(count, 1.0), processes(count, 1)).verdict_at(0.02) == "same"
