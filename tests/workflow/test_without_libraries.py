"""A host that only starts containers: it has Snakemake and what comes with it, and nothing that measures or draws."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scalecard.hardware.machine import probe
from support.projects import MEASURED, ROOT, SMOKE, completed, copy_project, planned, snakemake

pytestmark = pytest.mark.workflow

WITHOUT = {"PYTHONPATH": str(Path(__file__).parent / "without_libraries")}
ON_THE_HOST = ("--config", "container={engine: none}")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A fresh copy, beside the results of another platform."""
    folder = copy_project(tmp_path / "project")
    (folder / "results").mkdir()
    (folder / "results" / "h200x1-torch211").symlink_to(MEASURED / "h200x1-torch211")
    return folder


def test_a_dry_run_plans_the_same(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = planned(project, *SMOKE)
    (project / ".snakemake" / "scalecard-checked").unlink()
    monkeypatch.setenv("PYTHONPATH", WITHOUT["PYTHONPATH"])
    assert planned(project, *SMOKE) == every
    assert len(every) > 100
    assert "draw the figure of ddp" in completed(project, "--cores", "all", "-n")


def test_without_an_image_either_the_one_command_is_named_before_anything_is_measured(project: Path) -> None:
    done = snakemake(project, *SMOKE, *ON_THE_HOST, **WITHOUT)
    assert done.returncode == 1
    assert "has no PyTorch to measure without one: run `make`, which installs the locked one" in done.stdout
    assert not list((project / "results" / probe().slug).glob("*ing.json"))


def scalecard(*arguments: str) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join([WITHOUT["PYTHONPATH"], str(ROOT / "workflow" / "src")])
    command = [sys.executable, "-m", "scalecard", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)


def test_what_cannot_be_drawn_names_the_one_command(tmp_path: Path) -> None:
    result = str(MEASURED / "h200x1-torch211" / "health.json")
    done = scalecard("plot", "health", "--results", result, "--output", str(tmp_path / "health.svg"))
    assert done.returncode == 2
    assert done.stderr == f"plot: {sys.executable} has no matplotlib; `make` installs it in .venv\n"


def test_what_failed_is_said_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "container.log").write_text("the disk is full\n")
    done = scalecard("summary", "--failed", str(tmp_path / "container.log"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "the disk is full" in done.stdout
