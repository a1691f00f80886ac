"""Sections do with what was measured: of a real run some records are lost, as in one that fails and ends early."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from scalecard.records.record import Reason, Record, Result
from scalecard.report import figure_files, sections
from scalecard.report.render import render
from scalecard.report.section import Section
from support.builders import out_of_memory
from support.projects import results_of

pytestmark = pytest.mark.workflow

Lost = Callable[[int, Record, int], bool]
LOST: dict[str, Lost] = {
    "all": lambda index, record, half: True,
    "first half": lambda index, record, half: index < half,
    "second half": lambda index, record, half: index >= half,
    "times": lambda index, record, half: record.unit == "s",
}


ENDED = Record.failed({}, "the experiment ended early: TypeError: why", reason=Reason.ERROR)


def damaged(result: Result, lost: Lost) -> Result:
    half = len(result.records) // 2
    return replace(
        result,
        records=[
            out_of_memory(r.case, metric=r.metric, unit=r.unit) if lost(index, r, half) else r
            for index, r in enumerate(result.records)
        ]
        + [ENDED],
    )


@pytest.mark.parametrize("which", LOST)
def test_figures_findings_and_the_report_without_some_records(measured: Path, which: str) -> None:
    results = [damaged(result, LOST[which]) for result in results_of(measured).values()]
    for result in results:
        figure = sections.load(result.experiment).plot([result])
        assert figure.axes or result.experiment == "hybrid", "which draws no single point"
        outputs = [Path(f"{result.experiment}{suffix}") for suffix in (".svg", ".csv", ".html")]
        assert figure_files.pictures(figure, outputs, "a title", ["a footer"])[outputs[0]]
        told = Section.of(result)
        assert told.absent, result.experiment
        assert told.headline, result.experiment
        assert all(finding.text for finding in told.findings), result.experiment
    assert render(results, measured / "results" / "figures")
