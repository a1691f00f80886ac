"""The temporary folder of a measurement: everything goes there, and what a killed one left goes with the next start."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from scalecard.hardware import isolation
from support.projects import ROOT

MEASUREMENT = """
import multiprocessing, sys, tempfile, time
from scalecard.hardware import isolation

def touch():
    tempfile.mkdtemp(prefix="torchelastic_")

if __name__ == "__main__":
    with isolation.own_folder() as folder:
        context = multiprocessing.get_context("spawn")
        semaphore = context.Lock()
        child = context.Process(target=touch)
        child.start()
        child.join()
        print(folder, flush=True)
        time.sleep(120)
"""


@pytest.fixture
def measurement(tmp_path: Path) -> "subprocess.Popen[str]":
    """A process that measures, with a semaphore and a child that has made a temporary folder."""
    program = tmp_path / "measurement.py"
    program.write_text(MEASUREMENT)
    (tmp_path / "tmp").mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow" / "src"), "TMPDIR": str(tmp_path / "tmp")}
    command = [sys.executable, str(program)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)


def semaphores(folder: Path) -> list[Path]:
    return list(Path("/dev/shm").glob(f"sem.{folder.name}*"))


def test_what_a_killed_measurement_left_goes_and_what_a_living_one_uses_stays(
    measurement: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    assert measurement.stdout is not None
    folder = Path(measurement.stdout.readline().strip())
    try:
        assert folder.parent == tmp_path / "tmp"
        assert list(folder.glob("torchelastic_*")), "a child's too"
        assert semaphores(folder)
        assert isolation.remove_dead_folders(tmp_path / "tmp") == [], "it is alive"
        assert semaphores(folder)
    finally:
        os.killpg(measurement.pid, signal.SIGKILL)
        measurement.wait()
    assert folder.exists()
    assert isolation.remove_dead_folders(tmp_path / "tmp") == [folder]
    assert not folder.exists()
    assert not semaphores(folder)


def test_nothing_is_left_after_a_measurement_and_the_places_are_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = os.environ.get("TMPDIR")
    with isolation.own_folder() as folder:
        assert Path(tempfile.mkdtemp()).parent == folder
        assert os.environ["TMPDIR"] == str(folder)
    assert list(tmp_path.iterdir()) == []
    assert (tempfile.tempdir, os.environ.get("TMPDIR")) == (str(tmp_path), before)
    assert multiprocessing.current_process()._config["semprefix"] == "/mp"  # type: ignore[attr-defined]


def test_folders_that_are_not_ours_or_just_being_made_stay(tmp_path: Path) -> None:
    (tmp_path / f"{isolation.SCRATCH}young").mkdir()
    (tmp_path / "torchelastic_other").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (tmp_path / f"{isolation.SCRATCH}link").symlink_to(elsewhere)
    assert isolation.remove_dead_folders(tmp_path) == []
    os.utime(tmp_path / f"{isolation.SCRATCH}young", (0, 0))
    assert isolation.remove_dead_folders(tmp_path) == [tmp_path / f"{isolation.SCRATCH}young"]
    assert (elsewhere / "lock").exists()
    assert (tmp_path / "torchelastic_other").exists()
