"""The marker of an image that was deleted is forgotten, so that the image is made again."""

from collections.abc import Callable
from pathlib import Path

import pytest
from scalecard.jobs.containers import launch
from scalecard.jobs.containers.launch import Marker

Fake = Callable[[str, str], None]


@pytest.mark.parametrize(
    ("inspect", "gone"),
    [
        ("echo 'Error: No such image' >&2; exit 1", True),
        ("echo 'Error: inspecting object: x: image not known' >&2; exit 125", True),
        ("exit 0", False),
        ("echo 'cannot connect' >&2; exit 125", False),
    ],
)
def test_an_image_that_its_engine_does_not_know_is_noticed(
    fake_engine: Fake, tmp_path: Path, inspect: str, gone: bool
) -> None:
    fake_engine("docker", inspect)
    path = tmp_path / "container.json"
    launch.write_marker(path, Marker(engine="docker", why="", image="sha256:1"))
    assert launch.forget_if_gone(path) is gone
    assert path.exists() is not gone


def test_an_image_that_is_a_file_is_there_as_long_as_its_file(tmp_path: Path) -> None:
    path, sif = tmp_path / "container.json", tmp_path / "a.sif"
    sif.touch()
    launch.write_marker(path, Marker(engine="apptainer", why="", image=str(sif)))
    assert not launch.forget_if_gone(path)
    sif.unlink()
    assert launch.forget_if_gone(path)
    assert not launch.forget_if_gone(path), "there is no marker any more"


def test_the_hosts_environment_is_never_gone(tmp_path: Path) -> None:
    path = tmp_path / "container.json"
    launch.write_marker(path, Marker(engine="none", why="no engine answers"))
    assert not launch.forget_if_gone(path)
    assert launch.read_marker(path) == Marker(engine="none", why="no engine answers")
