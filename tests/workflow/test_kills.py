"""Kills in the middle of a measurement: nothing half-made is left, and measurements still never overlap."""

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from scalecard.hardware.isolation import LOCK
from scalecard.hardware.machine import probe
from scalecard.records.files import load, save
from scalecard.records.record import Reason, Record
from support.projects import HUNG, SMOKE, completed, made_at, made_since, outputs, planned, snakemake_in_background

pytestmark = pytest.mark.workflow

HERE = probe().slug


def measuring(folder: Path, name: str) -> list[int]:
    """Processes of the command line that measure this experiment in a copy; other tests measure in theirs meanwhile."""
    found = subprocess.run(["pgrep", "-f", f"^python -m scalecard run {name} "], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split() if _works_in(folder, pid)]


def _works_in(folder: Path, pid: str) -> bool:
    with contextlib.suppress(OSError):  # it has ended
        return Path(f"/proc/{pid}/cwd").samefile(folder)
    return False


def wait_until_measuring(folder: Path, name: str) -> int:
    """Until it has the machine's lock, for which it may have waited: other groups of tests measure meanwhile."""
    deadline = time.monotonic() + HUNG
    while time.monotonic() < deadline:
        for pid in measuring(folder, name):
            if LOCK.read_text() == f"process {pid}":
                time.sleep(1)  # it measures
                return pid
        time.sleep(0.2)
    raise TimeoutError(name)


def start_measuring(folder: Path, name: str) -> tuple["subprocess.Popen[bytes]", int]:
    """Snakemake, which measures one experiment whose result is gone, and the process that measures."""
    target = Path("results", HERE, f"{name}.json")
    (folder / target).unlink()
    running = snakemake_in_background(folder, Path(os.devnull), str(target), *SMOKE)
    return running, wait_until_measuring(folder, name)


def test_a_killed_rule_leaves_nothing_and_the_next_run_completes(own_copy: Path) -> None:
    before = made_at(own_copy)
    running, process = start_measuring(own_copy, "dp_scratch")
    os.kill(process, signal.SIGKILL)
    assert running.wait(120) != 0
    assert f"{HERE}/dp_scratch.json" not in made_at(own_copy)
    completed(own_copy, *SMOKE)
    assert made_since(own_copy, before) == outputs(["dp_scratch"])
    assert load(own_copy / "results" / HERE / "dp_scratch.json").count("ok")


def test_the_orphan_of_a_killed_snakemake_and_the_next_run_do_not_overlap(own_copy: Path) -> None:
    before = made_at(own_copy)
    running, orphan = start_measuring(own_copy, "strategies")
    running.kill()
    running.wait(30)
    assert measuring(own_copy, "strategies") == [orphan], "it lives on"
    os.kill(orphan, signal.SIGSTOP)  # it keeps the lock until the second run waits for it
    log = own_copy.parent / "second.log"
    second = snakemake_in_background(own_copy, log, *SMOKE)
    try:
        deadline = time.monotonic() + HUNG
        while f"process {orphan}" not in log.read_text():
            assert second.poll() is None, "the second run waits for it"
            assert time.monotonic() < deadline, "and says so"
            time.sleep(0.2)
    finally:
        os.kill(orphan, signal.SIGCONT)
    assert second.wait(HUNG) == 0
    assert "its lock is removed" in log.read_text(), "without --unlock by hand"
    assert made_since(own_copy, before) == outputs(["strategies"])
    assert load(own_copy / "results" / HERE / "strategies.json").count("ok")


def test_after_a_lost_rank_the_next_run_measures_its_cases_once_more(own_copy: Path) -> None:
    """The record of the lost rank is written here: `make faults` loses a real one."""
    path = own_copy / "results" / HERE / "allreduce.json"
    result = load(path)
    lost = [Record.failed(r.case, "rank 1 was killed", reason=Reason.LOST, metric=r.metric) for r in result.records[:2]]
    save(replace(result, records=[*lost, *result.records[2:]]), path)
    os.utime(path, (path.stat().st_mtime - 60,) * 2)  # it was measured before
    before = made_at(own_copy)
    told = completed(own_copy, *SMOKE)
    assert "allreduce: 2 cases failed last time" in told
    assert made_since(own_copy, before) == outputs(["allreduce"])
    assert load(path).count("failed") == 0
    assert planned(own_copy, *SMOKE) == set()
