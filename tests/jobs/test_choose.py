"""From the `container` block to a marker, through the command line: what `auto` falls back to, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scalecard.jobs.containers import launch
from support.projects import ROOT

Fake = Callable[[str, str], None]
FACTS = json.dumps([{"Id": "sha256:" + "a" * 64, "Size": 5}])
UNREACHABLE = """case $1 in
  info) echo '{}';;
  image) echo 'No such image' >&2; exit 1;;
  pull) echo 'no such host' >&2; exit 1;;
esac"""
WITHOUT_GPUS = f"""case $1 in
  info) echo '{{}}';;
  image) echo '{FACTS}';;
  run) [[ "$*" != *--gpus* ]] || {{ echo 'could not select device driver' >&2; exit 125; }};;
esac"""
OLD_DRIVER = f"""case $1 in
  info) echo '{{}}';;
  image) echo '{FACTS}';;
  run) [[ "$*" != *--gpus* ]] || {{
    echo 'nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0, please update your driver' >&2
    echo >&2; echo "Run 'docker run --help' for more information" >&2; exit 125; }};;
esac"""
OLD_FOR_TORCH = WITHOUT_GPUS.replace("could not select", "RuntimeError: The NVIDIA driver on your system is too old to")
WITHOUT_LIMITS = f"""case $1 in
  info) echo '{{}}';;
  image) echo '{FACTS}';;
  run) echo 'error setting rlimit type 8: operation not permitted' >&2; exit 125;;
esac"""


@pytest.fixture
def container(
    scalecard: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str], tuple[Any, Path]]:
    """`scalecard container` with this engine: what it left, and the path of the marker."""
    monkeypatch.chdir(ROOT)

    def call(engine: str) -> tuple[Any, Path]:
        block = {"engine": engine, "base_image": "far:1", "build_args": {}, "image": None, "packages": None}
        path = tmp_path / "container.json"
        return scalecard("container", json.dumps(block), "--output", path), path

    return call


@pytest.mark.parametrize(
    ("script", "gpus", "reason", "advice"),
    [
        (UNREACHABLE, False, "pull", "container.base_image"),
        (WITHOUT_GPUS, True, "could not select device driver", "NVIDIA container toolkit"),
        (OLD_DRIVER, True, "too old for the image's CUDA (nvidia-container-cli: requirement error", "base_image: 'pyt"),
        (OLD_FOR_TORCH, True, "too old for the image's CUDA (RuntimeError: The NVIDIA driver", "OWN_TORCH=1"),
        (WITHOUT_LIMITS, True, "does not start a container (error setting rlimit", "{engine: none}"),
        (WITHOUT_LIMITS, False, "does not start a container (error setting rlimit", "{engine: none}"),
    ],
    ids=["base image", "GPUs", "old driver", "old driver, by CDI", "no container", "no container, no GPUs"],
)
@pytest.mark.parametrize("wanted", ["auto", "docker"])
def test_auto_falls_back_to_the_host_with_the_reason_and_an_engine_by_name_is_an_error(
    container: Callable[[str], tuple[Any, Path]],
    fake_engine: Fake,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    gpus: bool,
    reason: str,
    advice: str,
    wanted: str,
) -> None:
    fake_engine("docker", script)
    monkeypatch.setattr(launch, "has_gpus", lambda: gpus)
    done, path = container(wanted)
    if wanted == "docker":
        assert (done.status, path.exists()) == (2, False)
        assert advice in done.err
        blamed = "NVIDIA container toolkit" in done.err
        assert blamed == (script == WITHOUT_GPUS), "the toolkit is blamed for nothing else"
    else:
        assert done.status == 0
        assert launch.read_marker(path).engine == "none"
        assert reason in launch.read_marker(path).why
        assert advice in done.out


@pytest.mark.parametrize("wanted", ["auto", "docker"])
def test_a_build_that_fails_leaves_no_marker(
    container: Callable[[str], tuple[Any, Path]], fake_engine: Fake, wanted: str
) -> None:
    fake_engine("docker", f"case $1 in info) echo '{{}}';; image) echo '{FACTS}';; *) echo broken >&2; exit 3;; esac")
    done, path = container(wanted)
    assert (done.status, path.exists()) == (2, False)
    assert "status 3" in done.err
    assert "broken" in done.err


def test_an_image_that_sees_the_gpus_is_the_marker(
    container: Callable[[str], tuple[Any, Path]], fake_engine: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine("docker", f"case $1 in info) echo '{{}}';; image) echo '{FACTS}';; esac")
    monkeypatch.setattr(launch, "has_gpus", lambda: True)
    done, path = container("auto")
    assert done.status == 0
    assert (launch.read_marker(path).engine, launch.read_marker(path).image) == ("docker", "sha256:" + "a" * 64)


@pytest.mark.parametrize(("wanted", "status"), [("auto", 0), ("apptainer", 2)])
def test_without_a_registry_auto_uses_the_host_and_not_apptainer(
    container: Callable[[str], tuple[Any, Path]],
    fake_engine: Fake,
    monkeypatch: pytest.MonkeyPatch,
    wanted: str,
    status: int,
) -> None:
    monkeypatch.setattr(launch, "ENGINES", ("apptainer",))
    unreachable = "dial tcp: lookup registry: no such host"
    fake_engine("apptainer", f"[ $1 = version ] && echo 1.4.5 || {{ echo 'FATAL: {unreachable}' >&2; exit 255; }}")
    done, path = container(wanted)
    assert (done.status, path.exists()) == (status, status == 0)
    assert unreachable in done.out + done.err
    if wanted == "auto":
        assert launch.read_marker(path).engine == "none"


def test_an_image_for_other_nodes_is_not_tried_on_this_one(
    scalecard: Callable[..., Any], fake_engine: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sif, path = tmp_path / "own.sif", tmp_path / "container.json"
    sif.write_bytes(b"image")
    fake_engine("apptainer", "[ $1 = version ] && echo 1.4.5 || exit 255")
    block = {"engine": "apptainer", "base_image": "far:1", "build_args": {}, "image": str(sif), "packages": None}
    assert scalecard("container", json.dumps(block), "--output", path).status == 2
    assert scalecard("container", json.dumps(block), "--shared", "--output", path).status == 0
