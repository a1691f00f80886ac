"""`make` where a project may lie: an odd path, no repository, no git, no home, another language."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.projects import ROOT, SMOKE, copy_project, results_of

pytestmark = pytest.mark.workflow

STAMPS = {"runtime": "docker/requirements.lock", "package": "pyproject.toml"}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with every program of the system except git."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for program in {p.name: p for place in ("/bin", "/usr/bin") for p in Path(place).iterdir()}.values():
        if not program.name.startswith("git"):
            (folder / program.name).symlink_to(program)
    return folder


def test_make_measures_in_a_tarball_with_an_odd_path(tmp_path: Path, programs: Path) -> None:
    project = copy_project(tmp_path / "ein {x} Ordner für Läufe")
    environment = project / ".venv"
    shutil.copytree(Path(sys.prefix, "bin"), environment / "bin", symlinks=True)
    for stamp, source in STAMPS.items():  # it is installed already
        shutil.copy(ROOT / source, environment / stamp)
    arguments = " ".join(["results/figures/async_timing.svg", *SMOKE])
    variables = {"PATH": str(programs), "HOME": "/nowhere", "LANG": "C", "LC_ALL": "C"}
    kept = {name: value for name, value in os.environ.items() if name.startswith("PYENV")}
    done = subprocess.run(
        ["make", f"ARGS={arguments}"], cwd=project, capture_output=True, text=True, env=variables | kept, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert (project / "results" / "figures" / "async_timing.svg").exists()
    (result,) = results_of(project).values()
    assert result.environment["commit"] is None
    assert result.environment["missing"]["commit"] == "git is not installed"


def test_the_interpreters_path_may_have_braces(tmp_path: Path) -> None:
    """Snakemake formats the prefix of every command, in which this path stands."""
    project = copy_project(tmp_path / "{x} project")
    (tmp_path / "{x}").symlink_to(sys.prefix)
    python = tmp_path / "{x}" / "bin" / "python"
    command = [str(python), "-m", "snakemake", "-n", "async_timing", *SMOKE]
    done = subprocess.run(command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
