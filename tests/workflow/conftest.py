"""The project after one whole run at the smoke scale, which all tests of this folder share."""

import shutil
from pathlib import Path

import pytest
from support.projects import SMOKE, completed, copy_project

RECORDING = Path(__file__).parent / "recording"


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tests only read it and run nothing in it that changes a file. Beside it is what the processes had loaded."""
    folder = tmp_path_factory.mktemp("measured")
    (folder / "loaded").mkdir()
    project = copy_project(folder / "project")
    completed(project, *SMOKE, PYTHONPATH=str(RECORDING), LOADED=str(folder / "loaded"))
    return project


@pytest.fixture
def own_copy(measured: Path, tmp_path: Path) -> Path:
    """A copy for a test that changes something. Snakemake takes it for the same: modification times are kept."""
    return Path(shutil.copytree(measured, tmp_path / "project", symlinks=True))
