"""`scalecard reruns` says of a file which jobs of the workflow read it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scalecard.jobs.inputs import reruns
from support.projects import ROOT

SOURCES = ROOT / "workflow/src/scalecard"
NOTHING = "measures nothing again; draws or writes again: "


def one(path: Path) -> str:
    (found,) = reruns([path])
    return found.partition("\n  ")[2].removesuffix("; then draws and writes what shows them")


def test_an_experiments_own_module_measures_it_alone() -> None:
    assert one(SOURCES / "experiments/ddp.py") == "measures again: ddp"


@pytest.mark.parametrize("name", ["run.py", "records/record.py"])
def test_what_every_experiment_loads_measures_all(name: str) -> None:
    assert one(SOURCES / name) == "measures again: every experiment"


def test_a_section_draws_its_own_figure_and_the_report() -> None:
    assert one(SOURCES / "report/sections/pipeline.py") == f"{NOTHING}the figure of pipeline, the report"
    assert one(SOURCES / "figures/charts.py").startswith(f"{NOTHING}every figure, ")


def test_a_template_writes_the_report_alone() -> None:
    assert one(ROOT / "workflow/report/style.css") == f"{NOTHING}the report"


def test_the_image_measures_all_and_a_test_runs_nothing() -> None:
    assert one(ROOT / "docker/Dockerfile") == "measures again: every experiment"
    assert one(Path(__file__)) == f"{NOTHING}nothing"


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
