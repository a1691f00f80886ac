"""What every cluster's profile shares, and a shell script as a generic scheduler."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import SITE, copy_project, set_up_site, snakemake, snakemake_in_background, with_profile
from scalecard import leftovers, schema, settings

PROFILES = Path(__file__).parents[1] / "profiles"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cluster": "slurm"}, "platform = auto: this is not the machine that is measured; set a label"),
        ({"cluster": "slurm", "platform": "a100"}, "scale = auto: this is not the machine that is measured"),
        ({"nodes": 2}, "nodes = 2: only `snakemake --workflow-profile slurm` starts a job on several nodes"),
        ({"cluster": "pbs"}, "cluster: 'pbs' is not one of ['none', 'slurm', 'kubernetes', 'generic']"),
    ],
)
def test_what_cannot_be_guessed_on_a_cluster_is_asked_for(changes: dict[str, Any], expected: str) -> None:
    config = yaml.safe_load((PROFILES.parent / "config.yaml").read_text())
    with pytest.raises(settings.InvalidConfig) as error:
        settings.resolve({**config, **changes}, check=False)
    assert expected in str(error.value)


def test_the_jobs_of_a_killed_workflow_are_those_that_it_marked(tmp_path: Path) -> None:
    marks = tmp_path / "incomplete" / "nested"
    marks.mkdir(parents=True)
    (marks / "b25l").write_text('{"external_jobid": "17"}')
    (marks.parent / "dHdv").write_text('{"external_jobid": null}')
    assert leftovers.marked_jobs(tmp_path) == {"17"}
    assert leftovers.marked_jobs(tmp_path / "never used") == set()


@pytest.mark.parametrize(
    ("line", "looks"),
    [
        ("-n", True),
        ("-nq", True),
        ("--dry-run", True),
        ("--unlock", True),
        ("--report x.html", True),
        ("-c all", False),
    ],
)
def test_what_only_looks_waits_for_nothing(line: str, looks: bool) -> None:
    assert leftovers.only_looks(["snakemake", "--workflow-profile", "slurm", *line.split()]) == looks


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
    status = here / which / "status"
    print(status.read_text() if status.exists() else "running")
"""


def numbers(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "jobs").glob("*"))


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
    targets = [f"results/{SITE}/{name}.json" for name in ("allreduce", "async_timing")]
    generic = with_profile("generic", *targets)
    first, again = folder / "first.log", folder / "again.log"
    running = snakemake_in_background(folder, first, *generic)
    wait_until(lambda: first.read_text().count("with external jobid") == 3, first)  # the machine, then both experiments
    time.sleep(2)  # until the numbers are on file
    running.send_signal(signal.SIGKILL)
    running.wait(30)
    assert snakemake(folder, *with_profile("generic", "--unlock")).returncode == 0
    running = snakemake_in_background(folder, again, *generic)
    wait_until(lambda: again.read_text().count("Resuming incomplete job") == 2, again)
    (folder / "go").touch()
    assert running.wait(300) == 0, again.read_text()[-4000:]
    assert numbers(folder) == ["1", "2", "3"], "nothing was submitted again"
    for target in targets:
        assert schema.load(folder / target).platform == SITE


FAKES = {
    "PBS": (
        "qstat",
        {
            "echo '    job_state = R'": "running",
            "printf 'job_state = F\\n Exit_status = 0\\n'": "success",
            "printf 'job_state = F\\n Exit_status = 271\\n'": "failed",
            "exit 35": "success",
        },
    ),
    "LSF": (
        "bjobs",
        {
            "echo RUN": "running",
            "echo PEND": "running",
            "echo DONE": "success",
            "echo EXIT": "failed",
            "exit 255": "success",
        },
    ),
}


@pytest.mark.parametrize("scheduler", ["PBS", "LSF", "SGE"])
def test_the_commented_commands_are_yaml_and_the_status_is_understood(scheduler: str, tmp_path: Path) -> None:
    text = (PROFILES / "generic" / "config.yaml").read_text()
    block = re.search(rf"^# --- {scheduler}.*?\n(.*?)^# ?(---|$)", text, re.MULTILINE | re.DOTALL)
    assert block
    found = yaml.safe_load(re.sub(r"^# ?", "", block[1], flags=re.MULTILINE))
    assert sorted(found) == [f"cluster-generic-{what}-cmd" for what in ("cancel", "status", "submit")]
    assert "{resources.runtime}" in found["cluster-generic-submit-cmd"]

    def status(**said: str) -> str:
        for name, answer in said.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{answer}\n")
            (tmp_path / name).chmod(0o755)
        path = f"{tmp_path}:{os.environ['PATH']}"
        command = f"{found['cluster-generic-status-cmd']} '17'"
        return subprocess.check_output(command, shell=True, text=True, env={"PATH": path}).strip()

    if scheduler == "SGE":
        assert status(qstat="exit 0", qacct="exit 1") == "running"
        assert status(qstat="exit 1", qacct="exit 1") == "running", "not in the accounts so far"
        assert status(qstat="exit 1", qacct="echo 'exit_status  0'") == "success"
        assert status(qstat="exit 1", qacct="echo 'exit_status  137'") == "failed"
        return
    name, answers = FAKES[scheduler]
    for said, expected in answers.items():
        assert status(**{name: said}) == expected
