"""What fails costs itself alone: the rest is measured, drawn and reported, and the run ends with status 1."""

from pathlib import Path

import pytest
from scalecard.hardware.machine import probe
from scalecard.records.files import load
from scalecard.records.record import Reason
from support.projects import SMOKE, snakemake

pytestmark = pytest.mark.workflow

PACKAGE = Path("workflow/src/scalecard")
ENDS_EARLY = """

_whole = run


def run(spec, machine):
    for number, record in enumerate(_whole(spec, machine)):
        if number == 2:
            raise TypeError("planted in the experiment")
        yield record
"""
CANNOT_BE_DRAWN = """

def plot(results):
    raise TypeError("planted in the figure")
"""


def plant(path: Path, code: str) -> None:
    path.write_text(path.read_text() + code)


def test_an_experiment_and_a_figure_that_fail_cost_no_report(own_copy: Path) -> None:
    plant(own_copy / PACKAGE / "experiments" / "async_timing.py", ENDS_EARLY)
    plant(own_copy / PACKAGE / "report" / "sections" / "copy_cost.py", CANNOT_BE_DRAWN)
    done = snakemake(own_copy, *SMOKE)
    assert done.returncode == 1
    assert "Done in" in done.stdout
    assert "Failed: left out: figure of copy_cost: it could not be drawn; see" in done.stdout
    assert "Failed: 1 case: async_timing as a whole (the experiment ended early: TypeError: planted" in done.stdout

    result = load(own_copy / "results" / probe().slug / "async_timing.json")
    assert len(result.records) == 3, "two were measured or skipped before"
    assert result.count("ok")
    assert result.records[-1].reason is Reason.ERROR
    page = (own_copy / "results" / "report.html").read_text()
    top = page[: page.index('id="findings"')]
    assert "The experiment ended early: TypeError: planted in the experiment" in top
    assert "figure of copy_cost" in top
    assert "planted in the figure" in (own_copy / "results" / "figures" / "copy_cost.svg").read_text()
    assert "planted in the figure" in (own_copy / "results" / "logs" / "figures" / "copy_cost.log").read_text()
