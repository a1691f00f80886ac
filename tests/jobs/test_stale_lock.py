"""Snakemake's lock: removed if its workflow is dead on this host, respected if it lives or may live elsewhere."""

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scalecard.jobs import startup
from support.projects import ROOT

WORKFLOW = """
import sys, tempfile, time
from pathlib import Path
from scalecard.jobs import startup
state = Path(sys.argv[1])
temporary = Path(tempfile.mkdtemp(dir=state, prefix="snakemake"))
startup.take_over_lock(["snakemake"], temporary=temporary, state=state)
(state / "locks").mkdir()
(state / "locks" / "0.input.lock").touch()
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What this process held is released."""
    yield
    while startup._held:
        os.close(startup._held.pop())


def start(state: Path, seconds: float = 60) -> "subprocess.Popen[str]":
    """A workflow that has locked the folder."""
    command = [sys.executable, "-c", WORKFLOW, str(state), str(seconds)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow" / "src")}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def take_over(state: Path, *arguments: str) -> None:
    startup.take_over_lock(["snakemake", *arguments], temporary=state / "mine", state=state)


def kill(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def entries(state: Path) -> list[Path]:
    return list((state / "scalecard-running").glob("*.*"))


def test_the_lock_of_a_dead_workflow_goes_with_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kill(start(tmp_path))
    (left,) = entries(tmp_path)
    assert list(tmp_path.glob("snakemake*"))
    take_over(tmp_path)
    assert not (tmp_path / "locks").exists()
    assert not list(tmp_path.glob("snakemake*")), "its temporary folder goes as well"
    assert "its lock is removed" in capsys.readouterr().out
    assert left not in entries(tmp_path)
    assert len(entries(tmp_path)) == 1, "our own"


def test_the_lock_of_a_living_workflow_is_respected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = start(tmp_path)
    try:
        take_over(tmp_path)
        assert list((tmp_path / "locks").iterdir())
        assert capsys.readouterr().out == "", "Snakemake says it"
    finally:
        kill(first)


@pytest.mark.parametrize("other", ["alive", "elsewhere"])
def test_one_dead_workflow_does_not_cost_another_its_lock(tmp_path: Path, other: str) -> None:
    """Two had locked the folder for different files; one of them is dead."""
    first = start(tmp_path)
    (tmp_path / "locks" / "0.input.lock").unlink()
    (tmp_path / "locks").rmdir()
    kill(start(tmp_path))
    if other == "elsewhere":
        (entry,) = (path for path in entries(tmp_path) if not startup._is_free(path))
        kill(first)
        entry.write_text("other-host")
        entry.rename(entry.with_name("another-boot.12345678"))
    try:
        take_over(tmp_path)
        assert list((tmp_path / "locks").iterdir())
    finally:
        kill(first)


def test_a_lock_from_another_host_is_respected_until_the_user_unlocks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kill(start(tmp_path))
    (left,) = entries(tmp_path)
    left.write_text("other-host")
    left.rename(left.with_name("another-boot.12345678"))
    take_over(tmp_path)
    assert list((tmp_path / "locks").iterdir())
    said = capsys.readouterr().out
    assert "other-host" in said
    assert "snakemake --unlock" in said
    take_over(tmp_path, "--unlock")
    assert [path.name.split(".")[0] for path in entries(tmp_path)] == [startup._boot()], "only our own is left"


def test_after_a_reboot_the_workflows_of_before_are_dead(tmp_path: Path) -> None:
    kill(start(tmp_path))
    (left,) = entries(tmp_path)
    assert left.read_text().startswith(platform.node())
    left.rename(left.with_name("older-boot.12345678"))
    take_over(tmp_path)
    assert not (tmp_path / "locks").exists()


def test_a_lock_that_nobody_entered_is_respected(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "0.input.lock").touch()
    take_over(tmp_path)
    assert list((tmp_path / "locks").iterdir())


def test_a_workflow_that_ends_leaves_no_entry_and_a_dry_run_makes_none(tmp_path: Path) -> None:
    start(tmp_path, 0).wait()
    assert entries(tmp_path) == []
    take_over(tmp_path / "other", "-n")
    assert not (tmp_path / "other").exists()
