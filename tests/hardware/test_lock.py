"""One measurement at a time on a machine, by a file that every user may lock and none can turn against another."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from scalecard.hardware import isolation
from support.projects import ROOT

SECOND = """
import sys
from pathlib import Path
from scalecard.hardware import isolation
isolation.LOCK = Path(sys.argv[1])
with isolation.machine_lock():
    print("got it", flush=True)
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(isolation, "LOCK", tmp_path / "lock")
    monkeypatch.delenv("SCALECARD_HOLDER", raising=False)
    return tmp_path / "lock"


def start_second(path: Path) -> "subprocess.Popen[str]":
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow" / "src")}
    command = [sys.executable, "-c", SECOND, str(path)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_a_second_measurement_waits_and_says_for_whom(path: Path) -> None:
    with isolation.machine_lock():
        second = start_second(path)
        assert second.stdout is not None
        assert f"process {os.getpid()}" in second.stdout.readline()
        assert second.poll() is None
    assert "got it" in second.stdout.read()
    assert second.wait(30) == 0


def test_the_lock_is_free_again_after_an_error(path: Path) -> None:
    with pytest.raises(RuntimeError, match="lost"), isolation.machine_lock():
        raise RuntimeError("lost")
    with isolation.machine_lock():
        assert path.stat().st_mode & 0o666 == 0o666, "every user may lock it"


def test_waiting_ends_and_names_the_holder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "LONGEST_WAIT", 0.2)
    monkeypatch.setattr(isolation, "PAUSE", 0.05)
    with isolation.machine_lock(), pytest.raises(isolation.UnusableLock, match=f"process {os.getpid()} has held"):  # noqa: SIM117
        with isolation.machine_lock():
            raise AssertionError


def link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def hard_link(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def fifo(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def folder(path: Path, victim: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("plant", [link, hard_link, fifo, folder])
def test_what_is_no_ordinary_file_is_refused_by_name_and_not_touched(
    path: Path, tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    plant(path, victim)
    with pytest.raises(isolation.UnusableLock, match=str(path)), isolation.machine_lock():
        raise AssertionError
    with pytest.raises(isolation.UnusableLock, match=str(path)):
        isolation.make_lock_file()
    assert victim.read_text() == "precious"
    assert victim.stat().st_mode & 0o777 == 0o600


def test_a_link_to_nowhere_makes_no_file_there(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "made")
    with pytest.raises(isolation.UnusableLock):
        isolation.make_lock_file()
    assert not (tmp_path / "made").exists()


def test_the_mode_of_an_existing_file_is_its_owners(path: Path) -> None:
    path.touch()
    path.chmod(0o640)
    isolation.make_lock_file()
    assert path.stat().st_mode & 0o777 == 0o640


def test_what_another_user_wrote_is_shown_as_one_short_line(path: Path) -> None:
    path.write_text("\x1b[31mprocess 1" + "x" * 500 + "\nignored")
    file = os.open(path, os.O_RDONLY)
    said = isolation._holder(file)
    os.close(file)
    assert "\x1b" not in said
    assert len(said) < 80
    assert "ignored" not in said
