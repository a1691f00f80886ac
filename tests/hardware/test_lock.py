"""One measurement at a time on a machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from projects import ROOT
from scalecard.hardware import lock

SECOND = """
import sys
from pathlib import Path
from scalecard.hardware import lock
lock.LOCK = Path(sys.argv[1])
with lock.machine_lock():
    print("got it", flush=True)
"""


def test_a_second_measurement_waits_and_says_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LOCK", tmp_path / "lock")
    monkeypatch.delenv("SCALECARD_HOLDER", raising=False)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow" / "src")}
    command = [sys.executable, "-c", SECOND, str(tmp_path / "lock")]
    with lock.machine_lock():
        second = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert second.stdout is not None
        assert f"process {os.getpid()}" in second.stdout.readline()
        assert second.poll() is None
    assert "got it" in second.stdout.read()
    assert second.wait(30) == 0


def test_the_lock_is_free_again_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LOCK", tmp_path / "lock")
    with pytest.raises(RuntimeError, match="lost"), lock.machine_lock():
        raise RuntimeError("lost")
    with lock.machine_lock():
        assert (tmp_path / "lock").stat().st_mode & 0o666 == 0o666, "every user may lock it"
