"""`scalecard reruns` says of a file which jobs of the workflow read it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scalecard.jobs.inputs import reruns
from support.projects import ROOT

SOURCES = ROOT / "workflow/src/scalecard"


def one(path: Path) -> tuple[list[str], list[str]]:
    (found,) = reruns([path])
    return found.measured, found.drawn


def test_an_experiments_own_module_measures_it_alone() -> None:
    assert one(SOURCES / "experiments/ddp.py") == (["ddp"], [])


@pytest.mark.parametrize("name", ["run.py", "records/record.py"])
def test_what_every_experiment_loads_measures_all(name: str) -> None:
    assert one(SOURCES / name)[0] == ["every experiment"]


def test_a_section_draws_its_own_figure_and_the_report() -> None:
    assert one(SOURCES / "report/sections/pipeline.py") == ([], ["the figure of pipeline", "the report"])
    assert one(SOURCES / "figures/charts.py")[1][0] == "every figure"


def test_a_template_writes_the_report_alone() -> None:
    assert one(ROOT / "workflow/report/style.css") == ([], ["the report"])


def test_the_image_measures_all_and_a_test_runs_nothing() -> None:
    assert one(ROOT / "docker/Dockerfile")[0] == ["every experiment"]
    assert one(Path(__file__)) == ([], [])


def test_the_command_works_from_any_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scalecard", "reruns", str(SOURCES / "experiments/pipeline.py")]
    environment = os.environ | {"PYTHONPATH": str(SOURCES.parent)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    file, again, *_ = done.stdout.splitlines()
    assert file == "workflow/src/scalecard/experiments/pipeline.py"
    assert again.startswith("  measures again: pipeline;")


def test_what_is_no_file_of_the_project_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.py").touch()
    for path in (tmp_path / "other.py", SOURCES / "missing.py", SOURCES):
        with pytest.raises(ValueError, match="must be a file of the project"):
            list(reruns([path]))
