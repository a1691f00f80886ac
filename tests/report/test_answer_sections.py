"""The group of answers on the page: in which order, when it is left out, and how a trial is told from advice."""

from dataclasses import replace
from pathlib import Path

import pytest
from scalecard.analysis.platforms import LeftOut
from scalecard.records.record import Result
from scalecard.report import answers, toc
from scalecard.report.render import every_answer as every
from scalecard.report.render import render
from support.every_experiment import every_result
from support.simulated_clusters import simulated

ANSWERED = [name for name in answers.names() if name != "save"]  # simulated clusters have no storage


@pytest.fixture
def figures(tmp_path: Path) -> Path:
    for name in ("strategies", "allreduce", "health", "input", *answers.names()):
        (tmp_path / f"{name}.html").write_text("<svg></svg>")
    return tmp_path


def test_answers_are_asked_in_the_order_of_a_reader() -> None:
    assert answers.names() == ["why", "use", "forecast", "save"]
    assert sorted(answers.names()) == toc.names(answers)
    with pytest.raises(ValueError, match=r"no answer named 'how' \(known: forecast, save, use, why\)"):
        answers.load("how")


def of(results: list[Result], *, emulated: bool) -> list[Result]:
    return [replace(result, environment={**result.environment, "emulated": emulated}) for result in results]


def leading(page: str) -> str:
    """The findings that the page begins with."""
    return page[page.index('<ol class="findings">') : page.index('<section id="overview"')]


def test_of_gpus_the_advice_is_among_the_first_findings(figures: Path) -> None:
    page = render(of([*simulated(8, seed=1).values()], emulated=False), figures)
    assert '<a href="#use">' in leading(page)
    assert 'class="answer trial"' not in page
    assert 'id="calculator"' in page


def test_of_emulated_devices_all_is_a_trial_and_no_advice_leads(figures: Path) -> None:
    page = render(of([*simulated(8, seed=1).values()], emulated=True), figures)
    assert not {name for name in answers.names() if f'href="#{name}"' in leading(page)}
    assert page.count('class="answer trial"') == len(ANSWERED)
    assert page.count("A trial of the method, no advice:") == len(ANSWERED)
    assert 'id="calculator"' not in page


def test_without_strategies_nothing_is_answered_and_empty_columns_are_left_out() -> None:
    results = every_result("box")
    assert every([result for result in results if result.experiment != "strategies"], {}, []) == []
    tables = [table for answer in every([*simulated(8, seed=1).values()], {}, []) for table in answer.tables]
    assert tables
    for table in tables:
        assert all(any(row[place].text for row in table.rows) for place in range(len(table.head))), table.label


def test_an_answer_that_cannot_be_computed_is_left_out_and_named() -> None:
    results = simulated(8, seed=1)
    strategies = results["strategies"]
    cases = [{key: value for key, value in record.case.items() if key != "unit"} for record in strategies.records]
    records = [replace(record, case=case) for record, case in zip(strategies.records, cases, strict=True)]
    without = replace(strategies, records=records)
    left_out = list[LeftOut]()
    others = every([*(results | {"strategies": without}).values()], {}, left_out)
    assert {each.what for each in left_out} | {f"answer {answer.name}" for answer in others} == {
        *(f"answer {name}" for name in ANSWERED)
    }
    assert "answer use" in {each.what for each in left_out}
    assert all(each.ours and each.reason.startswith("it has no 'unit' (") for each in left_out)
