"""Setting up where no package index can be reached: from a folder of wheels, with and without a PyTorch that is there.

A few small packages of the lock stand for all of it; one (connection-pool) comes as sources, and has to be built.
"""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.projects import copy_project

pytestmark = pytest.mark.workflow

NOWHERE = {"PIP_INDEX_URL": "http://127.0.0.1:9", "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": "", "PIP_RETRIES": "0"}


def with_lock(folder: Path, *packages: str) -> Path:
    """A copy of the project whose lock has only these packages."""
    lock = copy_project(folder) / "docker" / "requirements.lock"
    entries = lock.read_text().replace("\n    ", "\0").splitlines()
    kept = [entry.replace("\0", "\n    ") for entry in entries if entry.split("==")[0] in packages]
    assert len(kept) == len(packages)
    lock.write_text("\n".join(kept) + "\n")
    return folder


def make(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--silent", f"PYTHON={sys.executable}", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ | environment)


def said_by(folder: Path, code: str) -> str:
    """What a program prints in the environment that was set up there."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [".venv/bin/python", "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, env=environment).stdout


def test_the_environment_is_installed_from_a_folder_of_wheels_alone(tmp_path: Path) -> None:
    folder = with_lock(tmp_path / "project", "setuptools", "connection-pool")
    filled = make(folder, "wheels")
    assert filled.returncode == 0, filled.stderr
    (folder / ".venv").rename(tmp_path / "left behind")
    refused = make(folder, ".venv/package", "WHEELS=.", **NOWHERE)
    assert refused.returncode == 2
    done = make(folder, ".venv/package", "WHEELS=wheels", **NOWHERE)
    assert done.returncode == 0, done.stderr
    assert said_by(folder, "import scalecard, connection_pool; print(scalecard.__file__)").startswith(str(folder))
    assert make(folder, ".venv/package", "WHEELS=wheels", **NOWHERE).stdout == "", "nothing is installed twice"


def test_a_pytorch_that_is_there_is_used_and_only_the_rest_is_installed(tmp_path: Path) -> None:
    folder = with_lock(tmp_path / "project", "setuptools", "torch", "nvidia-nccl-cu13", "nvidia-ml-py")
    assert make(folder, "wheels", "OWN_TORCH=1").returncode == 0
    assert {path.name.split("-")[0] for path in (folder / "wheels").iterdir()} >= {"setuptools", "nvidia_ml_py"}
    assert not [*folder.glob("wheels/torch-*"), *folder.glob("wheels/nvidia_nccl*")]
    done = make(folder, ".venv/package", "OWN_TORCH=1", "WHEELS=wheels", **NOWHERE)
    assert done.returncode == 0, done.stderr
    found = said_by(
        folder, "import importlib.metadata as m, pynvml; print(m.version('torch'), pynvml.__file__)"
    ).split()
    assert found[0] == importlib.metadata.version("torch")
    assert found[1].startswith(str(folder)), "what is installed comes before what is there"


def test_an_image_keeps_the_pytorch_of_its_base_and_gets_the_rest_before_it(tmp_path: Path) -> None:
    """The environment of this test stands for the base image."""
    project = with_lock(tmp_path / "project", "setuptools", "torch", "nvidia-nccl-cu13", "nvidia-ml-py")
    image, path = tmp_path / "image", f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", "docker/install.sh", str(image), "docker/requirements.lock", "base"]
    subprocess.run(command, cwd=project, check=True, capture_output=True, env=os.environ | {"PATH": path})
    asked = [str(image / "bin/python"), "-c", "import pynvml, torch; print(pynvml.__file__, torch.__file__)"]
    nvml, torch = subprocess.check_output(asked, text=True).split()
    assert Path(nvml).is_relative_to(image)
    assert not Path(torch).is_relative_to(image)
    kept = [line for line in (image / "requirements.lock").read_text().splitlines() if line[0].isalpha()]
    names = ["nvidia-ml-py", "setuptools", "torch", "torchvision"]
    assert [line.split("==")[0] for line in kept] == names, "what further packages may not change"
    versions = [f"{name}=={importlib.metadata.version(name)}" for name in names[2:]]
    assert kept[2:] == versions


def test_without_pytorch_there_is_none_to_use(tmp_path: Path) -> None:
    folder = with_lock(tmp_path / "project", "setuptools")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    done = make(folder, ".venv/runtime", "OWN_TORCH=1", f"PYTHON={python}")
    assert done.returncode == 2
    assert "has no PyTorch" in done.stderr
