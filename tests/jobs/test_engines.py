"""Which container engine answers, with fake executables."""

from collections.abc import Callable

import pytest
from scalecard.jobs.containers import launch

Fake = Callable[[str, str], None]
SILENT = "echo 'Cannot connect to the Docker daemon' >&2; exit 1"


def test_a_client_without_a_daemon_does_not_answer(fake_engine: Fake) -> None:
    fake_engine("docker", SILENT)
    engine, why = launch.choose("auto")
    assert engine == "none"
    assert "Cannot connect to the Docker daemon" in why
    assert "podman: not installed" in why


def test_a_client_that_prints_nothing_does_not_answer(fake_engine: Fake) -> None:
    fake_engine("docker", "exit 0")
    assert launch.choose("auto")[0] == "none"


def test_a_client_that_hangs_does_not_answer(fake_engine: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "TIMEOUT", 0.3)
    fake_engine("docker", "exec sleep 5")
    monkeypatch.setitem(launch.QUESTION, "podman", ("echo", "4.3.1"))
    assert launch.choose("auto")[0] == "podman"


def test_auto_takes_the_first_that_answers(fake_engine: Fake) -> None:
    fake_engine("podman", "echo 4.3.1")
    fake_engine("apptainer", "echo 1.4.5")
    assert [launch.choose(wanted)[0] for wanted in ("auto", "apptainer", "none")] == ["podman", "apptainer", "none"]


def test_for_other_nodes_auto_takes_an_image_that_is_a_file_or_none(fake_engine: Fake) -> None:
    fake_engine("docker", "echo 27")
    assert launch.choose("auto", shared=True)[0] == "none"
    fake_engine("apptainer", "echo 1.4")
    assert launch.choose("auto", shared=True)[0] == "apptainer"


def test_an_engine_requested_by_name_must_answer(fake_engine: Fake) -> None:
    fake_engine("docker", SILENT)
    with pytest.raises(launch.NoEngine, match=r"container\.engine = docker.*Cannot connect.*\{engine: none\}"):
        launch.choose("docker")
