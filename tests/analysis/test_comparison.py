"""Two sets of results, case by case: verdicts from samples, and what is said beside them."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from scalecard.analysis import formatting
from scalecard.analysis.compare import DRIVER, Change, Comparison, Fact, Scope, compare, only
from scalecard.cli import compare_output
from scalecard.records.record import Record, Result
from scalecard.report import changes_section, changes_text
from support.builders import out_of_memory, repeated, timed

Make = Callable[..., Result]
SPEC = {"size": 4000, "sizes": [16, 4000], "measure": {"max_seconds": 1}, "data_dir": "data"}


@pytest.fixture
def compared(make_result: Make) -> Callable[..., Comparison]:
    """The comparison of two results with these records."""

    def of(old: list[Record], new: list[Record], **options: Any) -> Comparison:
        return compare([make_result(old, platform="old")], [make_result(new, platform="new")], **options)

    return of


def test_each_verdict_is_found_and_the_worst_comes_first(compared: Callable[..., Comparison]) -> None:
    factors = {"same": 1.0, "slower": 1.10, "faster": 0.90}
    old, new = (
        [repeated(each, mode=name) for name, each in side.items()] for side in (dict.fromkeys(factors, 1.0), factors)
    )
    found = compared(old, new)
    assert [(row.case["mode"], row.verdict) for row in found.rows] == [
        (name, name) for name in ("slower", "faster", "same")
    ]
    (first, *_) = found.rows
    assert first.ratio
    assert first.ratio.interval
    assert first.ratio.interval.low < 1.10 < first.ratio.interval.high
    assert found.spread_known


def test_a_difference_within_the_margin_is_none(compared: Callable[..., Comparison]) -> None:
    old, new = [repeated(1.0)], [repeated(1.1)]
    assert [compared(old, new, margin=margin).rows[0].verdict for margin in (0.02, 0.2)] == ["slower", "same"]


def test_what_differs_between_the_environments_is_listed(make_result: Make) -> None:
    old, new = make_result([repeated(1.0)]), make_result([repeated(1.0)])
    machine = {**new.environment["machine"], "driver": "580.2"}
    found = compare([old], [replace(new, environment={**new.environment, "machine": machine, "fingerprint": "f"})])
    assert found.changes == [Change(DRIVER, old.environment["machine"]["driver"], "580.2")]


def test_another_workload_is_not_compared_and_named(make_result: Make) -> None:
    changed = {**SPEC, "size": 2000, "sizes": [16], "measure": {"max_seconds": 9}}
    (row,) = compare([make_result([repeated(1.0)], spec=SPEC)], [make_result([repeated(2.0)], spec=changed)]).rows
    assert (row.verdict, row.ratio) == ("not compared", None)
    assert row.differing == [Change(Fact(Scope.WORKLOAD, "size"), 4000, 2000)]


def test_the_spread_between_processes_counts(compared: Callable[..., Comparison]) -> None:
    (row,) = compared([repeated(1.0, spread=0.04)], [repeated(1.04, spread=0.04)]).rows
    assert row.new.between
    assert row.new.within
    assert row.new.between.half_width > 3 * row.new.within.half_width
    assert row.verdict == "unclear"


@pytest.mark.parametrize(("factor", "verdict"), [(1.05, "unclear"), (1.3, "slower")])
def test_one_process_alone_tells_only_large_differences(
    compared: Callable[..., Comparison], factor: float, verdict: str
) -> None:
    found = compared([repeated(1.0, processes=1)], [repeated(factor, processes=1)])
    assert found.rows[0].verdict == verdict
    assert not found.spread_known


def test_cases_of_one_side_only_are_counted(compared: Callable[..., Comparison]) -> None:
    shared = repeated(1.0, mode="both")
    found = compared(
        [shared, repeated(1.0, mode="old")],
        [shared, out_of_memory({"mode": "old"})],
    )
    assert (len(found.rows), found.only) == (1, {"A": 1, "B": 0})


def test_without_a_common_case_there_is_nothing_to_compare(compared: Callable[..., Comparison]) -> None:
    with pytest.raises(ValueError, match=r"old \(async_timing\) and new \(async_timing\)"):
        compared([repeated(1.0, mode="a")], [repeated(1.0, mode="b")])


def test_warnings_of_both_sides_are_kept_with_their_experiments(make_result: Make) -> None:
    old = make_result([repeated(1.0)], warnings=["GPU 0 was busy"])
    found = compare([old], [make_result([repeated(1.0)])])
    assert found.warnings == [("A", "GPU 0 was busy (async_timing)")]
    assert any("GPU 0 was busy" in note for note in changes_text.notes(found))


def test_doubts_name_their_side(compared: Callable[..., Comparison]) -> None:
    rising = timed([1 + 0.01 * i for i in range(30)], rounds_id="new", mode="single")
    (row,) = compared([repeated(1.0)], [rising]).rows
    assert [doubt[:3] for doubt in row.doubts] == ["B: ", "B: "]


def test_the_json_view_has_every_number_of_a_row(compared: Callable[..., Comparison]) -> None:
    found = compared([repeated(1.0)], [repeated(1.1)])
    told, (row,) = json.loads(compare_output.output(found).json), found.rows
    assert (told["a"], told["b"], told["margin"]) == ("old", "new", 0.02)
    assert told["counts"] == {"slower": 1, "faster": 0, "same": 0, "unclear": 0, "not compared": 0}
    (stored,) = told["rows"]
    assert row.ratio
    assert row.ratio.interval
    assert stored["ratio"] == row.ratio.value
    assert stored["interval"] == [row.ratio.interval.low, row.ratio.interval.high]
    assert stored["b"] == {"median_seconds": row.new.median, "samples": 90, "processes": 3}


@pytest.mark.parametrize("view", [lambda found: compare_output.output(found).text, compare_output.page])
def test_the_views_for_readers_have_every_cell(
    compared: Callable[..., Comparison], view: Callable[[Comparison], str]
) -> None:
    found = compared([repeated(1.0)], [repeated(1.1)])
    text = view(found).replace("\u00a0", " ")  # a space before a unit does not break on a page
    for cell in (*changes_section.cases(found.rows, "").texts[0], changes_text.headline(found)):
        assert cell in text


def test_only_chosen_experiments_are_compared_and_controlled_together(make_result: Make) -> None:
    """Fifty noisy cases of another experiment hide a difference that stands alone; without them it holds."""
    few = {
        name: [timed(*[[m + 1e-4 * i for i in range(7)] for m in middles], rounds_id=name, number=-1)]
        for name, middles in (("a", (1.0, 1.01, 1.02)), ("b", (1.075, 1.085, 1.095)))
    }
    many = {side: [repeated(1 + 1e-9 * i, spread=0.02, number=i, side=0) for i in range(100)] for side in few}
    old, new = ([make_result(few[side]), make_result(many[side], experiment="ddp")] for side in few)
    assert [row.verdict for row in compare(old, new).rows if row.experiment == "async_timing"] == ["unclear"]
    (row,) = compare(*only(old, new, ["async_timing"])).rows
    assert row.verdict == "slower"
    assert only(old, new, []) == (old, new)


def test_an_experiment_that_a_side_lacks_is_named_with_those_that_both_have(make_result: Make) -> None:
    old = [make_result([repeated(1.0)]), make_result([repeated(1.0)], experiment="ddp")]
    with pytest.raises(ValueError, match=r"^--only ddp: not in both A and B \(in both: async_timing\)$"):
        only(old, old[:1], ["ddp"])


def test_junit_fails_for_slower_cases_alone(compared: Callable[..., Comparison], make_result: Make) -> None:
    factors = {"same": 1.0, "slower": 1.10, "faster": 0.90}
    old, new = (
        [repeated(each, mode=name) for name, each in side.items()] for side in (dict.fromkeys(factors, 1.0), factors)
    )
    (suite,) = ElementTree.fromstring(compare_output.output(compared(old, new)).junit.encode())
    told = {case.get("name"): [child.tag for child in case] for case in suite}
    assert told == {"mode slower": ["failure"], "mode faster": ["system-out"], "mode same": ["system-out"]}
    assert (suite.get("name"), suite.get("timestamp")) == ("new against old", "2026-01-01T00:01:00")
    failure = suite[0][0]
    assert str(failure.get("message")).startswith("slower: 1.098 (1.096 to 1.100) of A's time")
    other = compare([make_result(old, spec={"size": 1})], [make_result(new, spec={"size": 2})])
    (suite,) = ElementTree.fromstring(compare_output.output(other).junit.encode())
    assert (suite.get("skipped"), suite[0][0].get("message")) == ("3", "different workload: size 1 -> 2")


@pytest.mark.parametrize(
    ("ratio", "told"),
    [
        (2.083, "+108 %"),
        (1.0807, "+8.1 %"),
        (0.97, "-3.0 %"),
        (1.0002, "0 %"),
        (3.0, "+200 %"),
        (3.14, "3.14x"),
        (40.0, "40x"),
    ],
)
def test_a_ratio_is_told_as_a_change(ratio: float, told: str) -> None:
    assert formatting.change(ratio) == told
