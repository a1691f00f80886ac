"""A shell script as generic scheduler: the next workflow takes over the jobs that a killed one left."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from scalecard.jobs.startup import marked_jobs
from support.projects import (
    SITE,
    completed,
    copy_project,
    results_of,
    set_up_site,
    snakemake_in_background,
    with_profile,
)

pytestmark = pytest.mark.cluster

SCHEDULER = """#!/usr/bin/env python3
# submit SCRIPT | status NUMBER: jobs one after the other, each on the whole machine; all but the first wait for `go`
import fcntl, os, subprocess, sys, time
from pathlib import Path
here = Path(__file__).parent / "jobs"
here.mkdir(exist_ok=True)
what, which = sys.argv[1:]
if what == "submit":
    script = Path(which).read_text()
    number = str(len(list(here.iterdir())) + 1)
    job = here / number
    job.mkdir()
    (job / "script").write_text(script)
    print(number, flush=True)
    if os.fork() == 0:
        os.setsid()
        out = os.open(job / "log", os.O_CREAT | os.O_WRONLY)
        for stream in (0, 1, 2):
            os.dup2(out, stream)
        with open(here.parent / "node", "w") as node:
            fcntl.flock(node, fcntl.LOCK_EX)
            while number != "1" and not (here.parent / "go").exists():
                time.sleep(0.1)
            done = subprocess.run(["sh", job / "script"])
        (job / "status").write_text("failed" if done.returncode else "success")
elif what == "status":
    with open(here.parent / "asked", "a") as asked:
        print(which, file=asked)
    status = here / which / "status"
    print(status.read_text() if status.exists() else "running")
"""


def numbers(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "jobs").glob("*"))


def asked_about(folder: Path) -> set[str]:
    """The jobs whose status a workflow has asked for."""
    path = folder / "asked"
    return set(path.read_text().split()) if path.exists() else set()


def wait_until(happened: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(0.1)


def test_a_shell_script_as_scheduler_and_a_killed_workflow_takes_its_jobs_over(tmp_path: Path) -> None:
    folder = copy_project(tmp_path / "project")
    (folder / "scheduler").write_text(SCHEDULER)
    (folder / "scheduler").chmod(0o755)
    commands = "\n".join(f"cluster-generic-{what}-cmd: ./scheduler {what}" for what in ("submit", "status"))
    set_up_site(folder, "generic", {"jobs: 20": f"{commands}\nseconds-between-status-checks: 1\njobs: 20"})
    names = ("allreduce", "async_timing")
    generic = with_profile("generic", *(f"results/{SITE}/{name}.json" for name in names))
    first, again = folder / "first.log", folder / "again.log"
    running = snakemake_in_background(folder, first, *generic)
    wait_until(lambda: marked_jobs(folder / ".snakemake") == {"2", "3"}, first)  # 1 has said what the machine is
    running.send_signal(signal.SIGKILL)
    running.wait(30)
    completed(folder, *with_profile("generic", "--unlock"))
    (folder / "asked").unlink()
    running = snakemake_in_background(folder, again, *generic)
    wait_until(lambda: asked_about(folder) >= {"2", "3"}, again)
    (folder / "go").touch()
    assert running.wait(300) == 0, again.read_text()[-4000:]
    assert numbers(folder) == ["1", "2", "3"], "nothing was submitted again"
    assert {name: result.platform for name, result in results_of(folder, SITE).items()} == dict.fromkeys(names, SITE)
