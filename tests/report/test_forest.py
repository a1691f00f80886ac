"""The forest plot: where its marks are, what is beyond the axis, and how many rows it has."""

import re

import pytest
from scalecard.analysis.compare import Row
from scalecard.records.statistics import Interval, Ratio
from scalecard.report import pages
from scalecard.report.changes_section import MOST_ROWS, Forest, forest
from scalecard.report.changes_text import Group
from support.builders import timed


def row(ratio: float | None, verdict: str = "same") -> Row:
    record = timed([1.0] * 8)
    own = Ratio(ratio, Interval(ratio, ratio)) if ratio else None
    return Row(
        experiment="ddp", metric="time", case={}, old=record, new=record, ratio=own, verdict=verdict, alone=verdict
    )


def planned(*groups: Group) -> Forest:
    found = forest(groups, 0.02)
    assert found
    return found


def drawn(*groups: Group) -> list[str]:
    """The head and the rows of the page's table, and what follows it."""
    module = pages.environment().get_template("forest.html.j2").module
    text = str(module.plot(planned(*groups), "Label"))  # type: ignore[attr-defined]
    return text.replace("\u00a0", " ").split('<tr role="row"')[1:]


def numbers(text: str, pattern: str) -> list[float]:
    (found,) = re.findall(pattern, text)
    return list(map(float, [found] if isinstance(found, str) else found))


def test_marks_lie_on_a_linear_axis_about_zero() -> None:
    head, first, second = drawn(
        Group("a", [row(1.075, "slower"), row(1.05, "slower"), row(1.1, "slower")]), Group("b", [row(0.95, "faster")])
    )
    assert "-10 %<i></i>+10 %" in head
    assert numbers(head, 'left: ([^%]*)%">0<') == [50]
    assert numbers(first, 'class="whisker" x1="([^%]*)%" x2="([^%]*)%"') == pytest.approx([75, 100])
    assert numbers(first, '<circle cx="([^%]*)%"') == pytest.approx([87.5])
    assert first.startswith(' class="slower"')
    assert "+7.5 %<small>+5.0 % to +10.0 %</small>" in first
    assert second.startswith(' class="faster"')
    assert numbers(second, '<circle cx="([^%]*)%"') == [25]
    assert "<small></small>" in second, "one case has no range"
    band = numbers(first, 'class="band" x="([^%]*)%" y="0" width="([^%]*)%"')
    assert band == pytest.approx([40.2, 19.8], abs=0.01), "1 / 1.02 to 1.02"


def test_one_wild_case_is_cut_off_so_that_the_others_can_be_told_apart() -> None:
    head, first, second = drawn(Group("a", [row(1.0), row(1.01), row(9.0, "slower")]), Group("b", [row(1.03)]))
    assert "-20 %<i></i>+20 %" in head
    assert "&rsaquo;" in first
    assert "&lsaquo;" not in first
    assert "0 % to 9x" in first
    assert "saquo;" not in second


def test_no_time_falls_by_more_than_all_of_it() -> None:
    found = planned(Group("a", [row(4.0, "slower")]))
    assert (found.low, found.high) == (0, 3)


def test_more_rows_than_a_reader_looks_at_are_folded_and_what_was_not_compared_has_none() -> None:
    groups = [Group(f"group {number}", [row(1.01)]) for number in range(MOST_ROWS + 3)]
    found = planned(*groups, Group("other work", [row(None, "not compared")]))
    assert [group.label for group in found.folded] == ["group 12", "group 13", "group 14"]
    assert len(found.shown) == MOST_ROWS
    assert forest([Group("other work", [row(None, "not compared")])], 0.02) is None
