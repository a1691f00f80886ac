"""A base image with a PyTorch of its own, as for an older driver: it stays, and the image is what that makes of it."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from scalecard.jobs.containers import build
from support.blocks import CONFIG
from support.projects import ROOT

Fake = Callable[[str, str], None]
FACTS = json.dumps([{"Id": "sha256:" + "a" * 64, "Size": 5}])
FOUND = {
    "torch": "2.11.0+cu128",
    "torchvision": "0.26.0+cu128",
    "nvidia-cudnn-cu12": "9.10.2.21",
    "nvidia-nccl-cu12": "2.27.5",
    "cuda": "12.8",
    "python": [3, 12],
}


@pytest.fixture(autouse=True)
def project_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture
def prepared(fake_engine: Fake, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """The build arguments with which an image is built from a base that says this of its PyTorch."""
    called = tmp_path / "called"

    def call(says: str, *, engine: str = "docker", status: int = 0) -> dict[str, str]:
        # Apptainer alone is given the files that it makes.
        made, pulled = ('touch "${@: -2:1}"', "touch $2") if engine == "apptainer" else (":", ":")
        fake_engine(
            engine,
            f"case $1 in image) echo '{FACTS}';; run|exec) echo '{says}'; exit {status};; version) echo 1;;\n"
            f'build) printf "%s\\n" "$@" >{called}; {made};; pull) {pulled};; esac',
        )
        wanted = {"base_image": "base:1", "build_args": {}, "image": None, "packages": None}
        build.prepare(engine, "why", wanted)
        lines = called.read_text().splitlines()
        return dict(lines[at + 1].split("=", 1) for at, line in enumerate(lines) if line == "--build-arg")

    return call


@pytest.mark.parametrize("engine", ["docker", "podman", "apptainer"])
def test_the_image_is_of_the_cuda_of_the_base_images_own_pytorch(
    prepared: Callable[..., dict[str, str]], engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build, "SIF", tmp_path / "made.sif")
    given = prepared(json.dumps(FOUND), engine=engine)
    expected = {"TORCH": "base", "CUDA_VERSION": "12.8", "CUDNN_VERSION": "9.10.2.21", "NCCL_VERSION": "2.27.5"}
    assert given.items() >= {**expected, "OLDEST_CUDA": "12.0"}.items(), "a driver for 12.0 runs 12.8, too"


@pytest.mark.parametrize(("says", "status"), [("", 0), ("no python3 in PATH", 127)])
def test_without_one_the_image_gets_the_locked_pytorch(
    prepared: Callable[..., dict[str, str]], says: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    given = prepared(says, status=status)
    assert "TORCH" not in given, "then the Dockerfile's own default holds"
    assert given.items() >= build.cuda_versions().items()
    assert ("the locked one is installed" in capsys.readouterr().out) == bool(status)


def test_a_pytorch_for_cpus_asks_no_driver_for_anything(prepared: Callable[..., dict[str, str]]) -> None:
    given = prepared(json.dumps({"torch": "2.11.0+cpu", "torchvision": "0.26.0+cpu", "cuda": None, "python": [3, 11]}))
    expected = {"TORCH": "base", "CUDA_VERSION": "none", "CUDNN_VERSION": "unknown", "NCCL_VERSION": "unknown"}
    assert given.items() >= {**expected, "OLDEST_CUDA": "0.0"}.items()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"torch": "2.9.1+cu128"}, "but it is 2.9.1"),
        ({"torch": "1.13.0a0+git"}, "but it is 1.13.0a0"),
        ({"python": [3, 10]}, "but it is for Python 3.10"),
        ({"torchvision": None}, "but the image has no torchvision"),
    ],
)
def test_one_that_cannot_measure_is_refused_before_anything_is_built(
    prepared: Callable[..., dict[str, str]], tmp_path: Path, changes: Mapping[str, Any], said: str
) -> None:
    found = {name: value for name, value in {**FOUND, **changes}.items() if value is not None}
    with pytest.raises(build.BuildFailed, match=r"container\.base_image = base:1") as error:
        prepared(json.dumps(found))
    assert said in str(error.value)
    assert "PyTorch 2.11 or newer, torchvision" in str(error.value)
    assert not (tmp_path / "called").exists()


def test_what_a_python_is_asked_is_what_its_pytorch_says_of_itself() -> None:
    """Of this environment's own, which is the locked one."""
    assert build.own_torch("here", [sys.executable]) == {**build.cuda_versions(), "TORCH": "base"} | {
        "CUDA_VERSION": torch.version.cuda
    }
    assert build.own_torch("here", [sys.executable, "-S"]) == {}, "a Python without packages"


@pytest.mark.parametrize(
    ("changes", "other"),
    [
        ({}, False),
        ({"base_image": "pytorch/pytorch:2.11.0-cuda12.8-cudnn9-runtime"}, True),
        ({"image": "own.sif"}, True),
        ({"engine": "none", "image": "own.sif"}, False),
    ],
)
def test_the_driver_is_compared_with_this_environment_unless_another_pytorch_is_named(
    changes: Mapping[str, Any], other: bool
) -> None:
    assert build.brings_torch({**CONFIG["container"], **changes}) == other
