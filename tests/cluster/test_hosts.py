"""Two machines without a scheduler, which are network namespaces: what stands for ssh enters the second one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from scalecard.hardware import isolation
from scalecard.jobs.every_node import LINGER
from support.namespaces import ADDRESSES, NEEDS, can_make_namespaces, on_host, two_hosts
from support.projects import HUNG, ROOT, SMOKE, copy_project, results_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not can_make_namespaces(), reason=NEEDS),
]

# Like ssh, it hands on no variable; and the other machine has a lock of its own on measuring.
SSH = """#!/bin/sh
while :; do
  case $1 in
    -G) echo "hostname {address}"; exit ;;
    -o) shift 2 ;;
    -tt) shift ;;
    *) break ;;
  esac
done
host=$1
shift
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin ip netns exec "$host" sh -c "mount --bind '{lock}' {shared} && $*"
"""


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The second machine's name; this one's is that of on_host(0)."""
    lock, ssh = tmp_path / "lock", tmp_path / "ssh"
    isolation.make_lock_file()
    lock.touch()
    lock.chmod(0o666)
    ssh.write_text(SSH.format(address=ADDRESSES[1], lock=lock, shared=isolation.LOCK))
    ssh.chmod(0o755)
    monkeypatch.setenv("SCALECARD_SSH", str(ssh))
    with two_hosts() as (_, second):
        yield second


def test_the_workflow_measures_over_this_machine_and_a_host(tmp_path: Path, other: str) -> None:
    project = copy_project(tmp_path / "a project")
    target = ["allreduce", *SMOKE, "--config", f"hosts=[{other}]", "devices=1"]
    done = subprocess.run(
        on_host(0, [sys.executable, "-m", "snakemake", *target]),
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HUNG,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    result = results_of(project)["allreduce"]
    assert len(result.environment["nodes"]) == 2
    timed = [r for r in result.records if r.case.get("nodes") == 2 and r.status == "ok"]
    assert timed
    assert all(r.case["devices"] == 2 for r in timed)
    assert not [r.note for r in result.records if r.status == "failed"]


@pytest.fixture
def start(tmp_path: Path, other: str) -> Callable[[], "tuple[subprocess.Popen[bytes], list[psutil.Process]]"]:
    """Start a command that waits on both machines, and return the job and the command's process on each."""

    def started() -> "tuple[subprocess.Popen[bytes], list[psutil.Process]]":
        waits = 'echo $$ >"pid of $SCALECARD_NODE.part" && mv "pid of $SCALECARD_NODE.part" "pid of $SCALECARD_NODE"'
        command = ["sh", "-c", f"{waits} && exec sleep 600"]
        options = ["--cluster", "none", "--nodes", "2", "--hosts", other, "--", *command]
        job = subprocess.Popen(
            on_host(0, [sys.executable, "-m", "scalecard.jobs.every_node", *options]),
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT / "workflow" / "src")},
        )
        files = [tmp_path / f"pid of {number}" for number in (0, 1)]
        deadline = time.monotonic() + 60
        while not all(file.exists() for file in files) and time.monotonic() < deadline:
            time.sleep(0.1)
        return job, [psutil.Process(int(file.read_text())) for file in files]

    return started


@pytest.mark.parametrize("how", ["first", "job"])
def test_a_host_ends_with_the_first_node(
    start: Callable[[], "tuple[subprocess.Popen[bytes], list[psutil.Process]]"], how: str
) -> None:
    job, (first, second) = start()
    if how == "first":
        first.kill()
    else:
        job.send_signal(signal.SIGTERM)
    assert job.wait(LINGER + 30) != 0
    assert not first.is_running()
    psutil.wait_procs([second], timeout=10)
    assert not second.is_running()
