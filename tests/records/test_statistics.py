"""The interval of the median, and the verdict on a ratio."""

import math
import random

import pytest
import scipy.stats
from scalecard.records.statistics import Interval, Ratio, between, median_interval, paired_ratio, unpaired_ratio, within

# Two-sided 95 % of Student's t with so many degrees of freedom (NIST/SEMATECH e-Handbook, table 1.3.6.7.2).
STUDENT = {1: 12.706, 2: 4.303}


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    draw = random.Random(1)
    hits = 0
    for _ in range(400):
        interval = median_interval([draw.gauss(10, 2) for _ in range(25)])
        assert interval is not None
        hits += interval.low <= 10 <= interval.high
    assert 0.93 <= hits / 400 <= 0.995


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
def test_the_limits_of_the_interval_are_those_of_scipys_test(confidence: float) -> None:
    for count in (*range(1, 70), 500, 20_000):
        expected = scipy.stats.quantile_test(range(count), q=0, p=0.5).confidence_interval(confidence)
        found = median_interval([float(i) for i in range(count)], confidence)
        assert (found is None) == math.isnan(expected.low)
        assert found is None or found == Interval(expected.low, expected.high), count


@pytest.mark.parametrize(("count", "exists"), [(1, False), (5, False), (6, True)])
def test_an_interval_needs_six_samples(count: int, exists: bool) -> None:
    assert (median_interval([float(i) for i in range(count)]) is not None) == exists


@pytest.mark.parametrize(("count", "exists"), [(1, False), (2, True), (6, True)])
def test_an_interval_between_processes_needs_two(count: int, exists: bool) -> None:
    assert (between([[1.0 + i] for i in range(count)]) is not None) == exists


def test_without_intervals_the_ratio_is_that_of_the_medians() -> None:
    assert unpaired_ratio([[3.0]], [[2.0]]) == Ratio(1.5, None)


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


def test_half_of_an_interval_is_its_half_width() -> None:
    assert Interval(1.0, 4.0).half_width == 1.5


def six(middle: float, reach: float) -> list[float]:
    """Six samples, whose interval at 95 % is from the least to the greatest: 1 - 2 / 2^6 = 97 %, and less without."""
    return [middle - reach, *[middle] * 4, middle + reach]


def test_the_uncertainty_within_processes_is_the_usual_one_around_their_middle() -> None:
    assert within([six(10, 1), six(20, 2), six(30, 3)]) == Interval(18, 22)


def test_the_uncertainty_within_is_not_known_if_that_of_one_process_is_not() -> None:
    assert within([six(10, 1), [9.0, 10.0, 11.0], six(10, 1)]) is None


@pytest.mark.parametrize("medians", [(1.0, 2.0), (1.0, 2.0, 4.0)])
def test_between_few_processes_student_tells_from_the_logs_of_their_medians(medians: tuple[float, ...]) -> None:
    """The logs of 1, 2, 4 are 0, 1, 2 times ln 2, whose standard deviation is ln 2; of 1, 2, it is ln 2 / sqrt(2)."""
    count, centre = len(medians), math.sqrt(2.0) if len(medians) == 2 else 2.0
    deviation = math.log(2) / (math.sqrt(2) if count == 2 else 1)
    half = STUDENT[count - 1] * deviation / math.sqrt(count)
    found = between([[9.0, middle, middle] for middle in medians])
    assert found is not None
    assert found.low == pytest.approx(centre * math.exp(-half), rel=1e-3)
    assert found.high == pytest.approx(centre * math.exp(half), rel=1e-3)


def test_between_many_processes_the_order_of_their_medians_tells() -> None:
    assert between([[9.0, middle, middle] for middle in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)]) == Interval(1, 6)


def test_pairs_are_those_of_a_round() -> None:
    old = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    ratio = paired_ratio([old[::-1]], [old])
    assert ratio.value == pytest.approx((3 / 4 + 4 / 3) / 2)
    assert ratio.interval == Interval(1 / 6, 6)


def test_a_paired_ratio_is_as_uncertain_as_processes_differ() -> None:
    ratio = paired_ratio([[1.0] * 6, [1.2] * 6], [[1.0] * 6] * 2)
    half = STUDENT[1] * math.log(1.2) / 2
    assert ratio.interval is not None
    assert ratio.interval.high == pytest.approx(math.sqrt(1.2) * math.exp(half), rel=1e-3)


def test_an_unpaired_ratio_is_as_uncertain_as_both_medians() -> None:
    exact, wide = [[1.0] * 6], [[0.8, 1.0, 1.0, 1.0, 1.0, 1.25]]
    of_old, of_new, of_both = (unpaired_ratio(*pair).interval for pair in ((exact, wide), (wide, exact), (wide, wide)))
    assert of_old
    assert of_new
    assert of_both
    assert (of_old.low, of_old.high) == pytest.approx((1 / 1.25, 1 / 0.8))
    assert (of_new.low, of_new.high) == pytest.approx((0.8, 1.25))
    assert of_both.high == pytest.approx(math.exp(math.sqrt(2) * math.log(1.25)))


def test_the_limits_of_an_unpaired_ratio_by_hand() -> None:
    """Six samples: the interval of the median goes from the least to the largest. Distances add in quadrature."""
    ratio = unpaired_ratio([[8, 9, 10, 10, 11, 13]], [[4, 4.5, 5, 5, 5.5, 5.8]])
    assert ratio.value == 2
    assert ratio.interval
    down, up = math.hypot(math.log(10 / 8), math.log(5.8 / 5)), math.hypot(math.log(13 / 10), math.log(5 / 4))
    assert ratio.interval.low == pytest.approx(2 * math.exp(-down))
    assert ratio.interval.high == pytest.approx(2 * math.exp(up))


def test_processes_in_which_something_took_no_time_have_no_interval() -> None:
    """A logarithm of zero has none."""
    assert between([[0.0, 0.0], [1.0, 1.0]]) is None
    assert between([[0.5, 1.0], [1.0, 1.0]])
