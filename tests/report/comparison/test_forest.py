"""The forest plot: where its marks are, what is beyond the axis, and how many rows it has."""

import pytest
from scalecard.analysis.comparison.compare import Row
from scalecard.records.statistics import Interval, Ratio
from scalecard.report.comparison.forest import MOST_ROWS, Forest, forest
from scalecard.report.comparison.summaries import Group
from support.builders import timed


def row(ratio: float | None, verdict: str = "same") -> Row:
    record = timed([1.0] * 8)
    own = Ratio(ratio, Interval(ratio, ratio)) if ratio else None
    return Row(
        experiment="ddp", metric="time", case={}, old=record, new=record, ratio=own, verdict=verdict, alone=verdict
    )


def drawn(*groups: Group) -> Forest:
    found = forest(groups, 0.02)
    assert found
    return found


def test_marks_lie_on_a_linear_axis_about_zero() -> None:
    found = drawn(
        Group("a", [row(1.075, "slower"), row(1.05, "slower"), row(1.1, "slower")]), Group("b", [row(0.95, "faster")])
    )
    assert (found.ends, found.zero) == (("-10 %", "+10 %"), 50)
    first, second = found.rows
    assert (first.low, first.at, first.high) == pytest.approx((75, 87.5, 100))
    assert (first.look, first.value, first.span) == ("slower", "+7.5 %", "+5.0 % to +10.0 %")
    assert (second.look, second.at, second.span) == ("faster", 25, "")
    assert found.band == pytest.approx((40.2, 19.8), abs=0.01), "1 / 1.02 to 1.02"


def test_one_wild_case_is_cut_off_so_that_the_others_can_be_told_apart() -> None:
    found = drawn(Group("a", [row(1.0), row(1.01), row(9.0, "slower")]), Group("b", [row(1.03)]))
    assert found.ends == ("-20 %", "+20 %")
    assert (found.rows[0].high, found.rows[0].beyond, found.rows[0].span) == (100, "high", "0 % to 9x")
    assert found.rows[1].beyond == ""


def test_no_time_falls_by_more_than_all_of_it() -> None:
    assert drawn(Group("a", [row(4.0, "slower")])).ends == ("-100 %", "+200 %")


def test_more_rows_than_a_reader_looks_at_are_folded_and_what_was_not_compared_has_none() -> None:
    groups = [Group(f"group {number}", [row(1.01)]) for number in range(MOST_ROWS + 3)]
    found = drawn(*groups, Group("other work", [row(None, "not compared")]))
    assert ([mark.label for mark in found.folded], len(found.rows)) == (["group 12", "group 13", "group 14"], MOST_ROWS)
    assert forest([Group("other work", [row(None, "not compared")])], 0.02) is None
