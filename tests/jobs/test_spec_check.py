"""The check of the blocks on a host without PyTorch: the image is asked, as soon as there is one."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scalecard.jobs import config
from scalecard.jobs.config import InvalidConfig, resolve
from scalecard.jobs.containers import launch
from scalecard.jobs.containers.launch import Marker
from support.blocks import CONFIG
from support.projects import ROOT

IMAGE = Marker(engine="podman", why="it answers", image="sha256:1")
WRONG = {**CONFIG, "experiments": {**CONFIG["experiments"], "ddp": {**CONFIG["experiments"]["ddp"], "lr": 0}}}


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Marker]:
    """A host without PyTorch, where this Python is in every image: the images that were asked."""
    asked = list[Marker]()

    def call(marker: Marker, command: Sequence[str], **_: Any) -> launch.Call:
        asked.append(marker)
        return launch.Call([sys.executable, *command[1:]], {"PYTHONPATH": str(ROOT / "workflow" / "src")})

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(config, "has_torch", lambda: False)
    monkeypatch.setattr(config.launch, "call", call)
    for name in ("BLOCKS", "CHECKED"):
        monkeypatch.setattr(config, name, tmp_path / name)
    return asked


def test_before_there_is_an_image_values_wait_for_it(asked: list[Marker]) -> None:
    resolve(WRONG, check=True)
    assert asked == []
    with pytest.raises(InvalidConfig, match=r"experiments\.ddp\.lr = 0: "):
        config.check_in_image(IMAGE)
    assert not config.CHECKED.exists(), "what is wrong is checked again"


def test_what_the_image_accepts_is_not_checked_again(asked: list[Marker]) -> None:
    resolve(CONFIG, check=True)
    for _ in range(2):
        config.check_in_image(IMAGE)
        resolve(CONFIG, check=True)
    assert asked == [IMAGE]


def test_an_image_that_is_there_is_asked_at_once(asked: list[Marker], tmp_path: Path) -> None:
    launch.write_marker(tmp_path / "container.json", IMAGE)
    assert config.spec_place(tmp_path / "container.json") == IMAGE
    assert config.spec_place(tmp_path / "none.json") is None


def test_without_an_image_nothing_can_be_measured(asked: list[Marker]) -> None:
    with pytest.raises(ValueError, match=r"no engine answers.*has no PyTorch.*run `make`"):
        config.check_in_image(Marker(engine="none", why="no engine answers"))


def test_a_host_with_pytorch_asks_no_image(
    asked: list[Marker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "has_torch", lambda: True)
    launch.write_marker(tmp_path / "container.json", IMAGE)
    assert config.spec_place(tmp_path / "container.json") == config.HOST
    config.check_in_image(Marker(engine="none", why="no engine answers"))
