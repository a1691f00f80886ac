"""A measurement that is killed: the next one goes on with what is missing."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from scalecard.hardware.machine import probe
from scalecard.jobs.inputs import write_machine
from scalecard.records.files import load
from support.blocks import SHORTEST, block
from support.projects import ROOT

pytestmark = pytest.mark.ranks
SIZES = [2**power for power in range(12, 22)]
MEASURE = {**SHORTEST, "processes": 2, "min_rounds": 6, "max_rounds": 6}


@contextmanager
def measuring(output: Path, **changes: object) -> Iterator["subprocess.Popen[str]"]:
    """The command that a job runs."""
    spec = block("copy_cost", size=64, products=2, bytes=SIZES, **{"measure": MEASURE, **changes})
    arguments = ["run", "copy_cost", "--spec", spec, "--machine", str(output.with_name("machine.json"))]
    command = [sys.executable, "-m", "scalecard", *arguments, "--output", str(output)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow" / "src")}
    running = subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


@contextmanager
def another_program() -> Iterator[None]:
    """One that keeps every core busy."""
    command = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def kept(output: Path) -> int:
    """How many groups lie beside the result."""
    files = output.parent.glob("unfinished/copy_cost/process *.jsonl")
    return sum(len(path.read_text().splitlines()) - 1 for path in files)


def test_every_kill_costs_the_group_under_way_alone(tmp_path: Path) -> None:
    """Killed in the first process, and in the second one, whose decisions and groups are others."""
    output = tmp_path / "box" / "copy_cost.json"
    write_machine(output.with_name("machine.json"), probe())
    before = 0
    for enough, beside in ((3, another_program()), (len(SIZES) + 4, nullcontext())):
        with beside, measuring(output) as running:
            deadline = time.monotonic() + 120
            while kept(output) < enough:
                assert running.poll() is None, running.communicate()[0]
                assert time.monotonic() < deadline
                time.sleep(0.01)
            running.send_signal(signal.SIGKILL)
        assert not output.exists()
        assert kept(output) >= max(enough, before)
        before = kept(output)
    with measuring(output) as running:
        said, _ = running.communicate(timeout=120)
    assert running.returncode == 0, said
    assert "of a run before this one, which began at" in said
    result = load(output)
    assert not output.with_name("unfinished").exists()
    timed = [record for record in result.records if record.metric == "time" and record.status == "ok"]
    assert len(timed) > len(SIZES)
    first, second = (len({record.runs[process] for record in timed}) for process in (0, 1))
    assert (first, second) == (2, 2), "each process went on where it was"
    assert all(len(record.runs) == len(record.samples) == 2 for record in timed)
    told = [warning for warning in result.warnings if "of a run before this one, which began at" in warning]
    assert len(told) == 1
    disturbed = [warning for warning in result.warnings if warning.startswith("run of ")]
    assert any("other programs kept" in warning for warning in disturbed)


def test_other_values_begin_anew(tmp_path: Path) -> None:
    output = tmp_path / "box" / "copy_cost.json"
    write_machine(output.with_name("machine.json"), probe())
    with measuring(output) as running:
        while kept(output) < 2 and running.poll() is None:
            time.sleep(0.01)
    assert not output.exists()
    with measuring(output, seed=1) as running:
        said, _ = running.communicate(timeout=120)
    assert running.returncode == 0, said
    assert {run for record in load(output).records for run in record.runs} == {load(output).started}
