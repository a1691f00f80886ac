"""What makes an interval too narrow: samples that drift, and neighbours that resemble one another."""

import random
from collections.abc import Sequence

import pytest
from scalecard.analysis.provenance import autocorrelation, doubts, drift

RISING = [1 + 0.01 * i for i in range(30)]


def independent(count: int = 30, seed: int = 0) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(1, 0.01) for _ in range(count)]


def test_drift_is_the_second_half_over_the_first() -> None:
    assert drift([1.0, 1.0, 2.0, 2.0]) == 2
    assert drift(RISING) == pytest.approx(1.14, abs=0.005)
    assert drift(list(reversed(RISING))) == pytest.approx(1 / 1.14, abs=0.005)


def test_neighbours_are_correlated_where_samples_rise_and_not_where_they_alternate() -> None:
    assert autocorrelation(RISING) == pytest.approx(1)
    assert autocorrelation([1.0, 2.0] * 10) == pytest.approx(-1)
    assert autocorrelation([1.0] * 10) == 0


@pytest.mark.parametrize(
    ("samples", "percent", "word"), [(RISING, "14 %", "slower"), (list(reversed(RISING)), "12 %", "faster")]
)
def test_a_drift_is_told_with_its_size_and_direction(samples: Sequence[float], percent: str, word: str) -> None:
    drifting, related = doubts([independent(), samples])
    assert percent in drifting
    assert word in drifting
    assert "1.00" in related


@pytest.mark.parametrize(
    "processes",
    [
        [independent()],
        [RISING[:11]],  # too few to tell
        [[1 + 0.0001 * i for i in range(12)]],  # a tenth of a per cent is no drift worth telling
        [],
    ],
    ids=["independent", "few", "tiny", "none"],
)
def test_nothing_is_told_of_samples_without_a_drift(processes: list[list[float]]) -> None:
    assert [doubt for doubt in doubts(processes) if "half" in doubt] == []


def test_independent_samples_of_many_processes_raise_no_doubt() -> None:
    assert sum(bool(doubts([independent(seed=10 * run + n) for n in range(3)])) for run in range(100)) <= 3
