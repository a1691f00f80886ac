"""Many cases compared at once: few false verdicts, real changes found, and the verdict of each case alone kept."""

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from scalecard.analysis.compare import Comparison, Row, compare
from scalecard.cli import compare_output
from scalecard.records.record import Record, Result
from support.builders import timed

Compare = Callable[[list[Record], list[Record]], Comparison]
DIFFERENT = ("slower", "faster")


@pytest.fixture
def compared(make_result: Callable[..., Result]) -> Compare:
    def of(old: list[Record], new: list[Record]) -> Comparison:
        return compare([make_result(old, platform="old")], [make_result(new, platform="new")])

    return of


def platform(
    draw: random.Random,
    num_cases: int,
    *,
    processes: int = 3,
    spread: float = 0.01,
    shared: float = 0.0,
    factors: Mapping[int, float] | None = None,
) -> list[Record]:
    """Fresh processes differ by `spread`, more in some cases than in others; cases share a part of its variance."""
    moods = [draw.gauss(0, shared**0.5) for _ in range(processes)]
    records = []
    for number in range(num_cases):
        own, factor = spread * 2 ** (number % 3 - 1), (factors or {}).get(number, 1.0)
        middles = [factor * (1 + own * (mood + draw.gauss(0, (1 - shared) ** 0.5))) for mood in moods]
        samples = [[middle * draw.gauss(1, 0.001) for _ in range(7)] for middle in middles]
        records.append(timed(*samples, rounds_id=str(draw.random()), number=number))
    return records


def by_number(found: Comparison) -> dict[Any, Row]:
    return {row.case["number"]: row for row in found.rows}


def steady(*middles: float, number: int = 0) -> Record:
    """Processes with these medians and no scatter to speak of."""
    samples = [[middle * (1 + 0.0001 * i) for i in range(-3, 4)] for middle in middles]
    return timed(*samples, rounds_id=str(middles), number=number)


@pytest.mark.parametrize("processes", [1, 2, 3, 6])
@pytest.mark.parametrize("factor", [0.5, 0.95, 1.0, 1.05, 1.1, 2.0])
def test_a_single_case_keeps_its_own_verdict(compared: Compare, processes: int, factor: float) -> None:
    draw = random.Random(str([processes, factor]))
    sides = [platform(draw, 1, processes=processes, factors={0: each}) for each in (1.0, factor)]
    (row,) = compared(*sides).rows
    assert (row.verdict, row.among) == (row.alone, 0)


@pytest.mark.parametrize("processes", [3, 9])
def test_unchanged_cases_are_rarely_called_different(compared: Compare, processes: int) -> None:
    """At most 1 of 20 comparisons of 100 unchanged cases has any false verdict, though cases vary together."""
    draw, alone, among_all = random.Random(4), 0, 0
    for _ in range(20):
        sides = [platform(draw, 100, processes=processes, spread=0.05, shared=0.5) for _ in range(2)]
        rows = compared(*sides).rows
        alone += any(row.alone in DIFFERENT for row in rows)
        among_all += any(row.verdict in DIFFERENT for row in rows)
    assert among_all <= 1 < alone


@pytest.mark.parametrize(("processes", "factor"), [(3, 1.15), (15, 1.05)])
def test_a_real_change_of_few_among_many_is_found(compared: Compare, processes: int, factor: float) -> None:
    draw, changed = random.Random(5), range(0, 100, 20)
    old = platform(draw, 100, processes=processes, spread=0.005)
    new = platform(draw, 100, processes=processes, spread=0.005, factors=dict.fromkeys(changed, factor))
    rows = by_number(compared(old, new))
    assert {number for number, row in rows.items() if row.verdict == "slower"} == set(changed)


def test_nothing_is_found_that_a_case_alone_does_not_show(compared: Compare) -> None:
    draw = random.Random(6)
    old, new = platform(draw, 100), platform(draw, 100, factors=dict.fromkeys(range(60), 1.06))
    rows = compared(old, new).rows
    assert all(row.verdict == row.alone for row in rows if row.alone not in DIFFERENT)
    assert sum(row.verdict == "slower" for row in rows) > 10


def test_many_that_became_faster_make_no_case_slower(compared: Compare) -> None:
    """The two directions are judged apart, so that a gate on 'slower' does not depend on what became faster."""
    draw = random.Random(7)
    doubtful = [steady(1, 1.01, 1.02, number=100)], [steady(1.075, 1.085, 1.095, number=100)]
    old = platform(draw, 100, spread=0.02) + doubtful[0]
    for factors in ({}, dict.fromkeys(range(90), 0.5)):
        rows = by_number(compared(old, platform(draw, 100, spread=0.02, factors=factors) + doubtful[1]))
        assert (rows[100].alone, rows[100].verdict) == ("slower", "unclear")
    assert sum(row.verdict == "faster" for row in rows.values()) == 90


def test_both_verdicts_and_the_reason_are_told(compared: Compare) -> None:
    draw = random.Random(8)
    old = [*platform(draw, 99, spread=0.02), steady(1, 1.01, 1.02, number=99)]
    new = [*platform(draw, 99, spread=0.02), steady(1.075, 1.085, 1.095, number=99)]
    found = compared(old, new)
    (told,) = (row for row in json.loads(compare_output.output(found).json)["rows"] if row["case"] == {"number": 99})
    assert (told["alone"], told["verdict"]) == ("slower", "unclear")
    assert told["reason"] == "beyond the margin alone, but not among 100 cases"
    for text in (compare_output.output(found).text, compare_output.page(found)):
        assert told["reason"] in text


def test_a_change_of_equal_steady_processes_is_found(compared: Compare) -> None:
    """Without any spread there is no logarithm of it, and no doubt either."""
    old = [timed(*[[1.0] * 7] * 3, rounds_id="old", number=number) for number in range(9)]
    new = [timed(*[[1.5] * 7] * 3, rounds_id="new", number=number) for number in range(9)]
    assert {row.verdict for row in compared(old, new).rows} == {"slower"}


@pytest.mark.parametrize(("factor", "verdict"), [(1.12, "unclear"), (1.4, "slower")])
def test_of_one_process_the_assumed_spread_grows_with_the_cases(compared: Compare, factor: float, verdict: str) -> None:
    draw = random.Random(9)
    sides = [platform(draw, 100, processes=1, spread=0.001, factors={7: each}) for each in (1.0, factor)]
    row = by_number(compared(*sides))[7]
    assert (row.alone, row.verdict) == ("slower", verdict)
