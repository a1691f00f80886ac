"""Jobs that a killed workflow left in Slurm's queue: they keep running, and the next start waits for them.

Slurm's plugin, unlike cluster-generic, cannot adopt a job of an earlier run: it would be submitted again even while it
is running. Snakemake marks the output of each job that it submits with the scheduler's job ID; but once the job runs,
its own Snakemake writes the mark anew, without the ID. So the queue is asked as well: the plugin names each job after
its run, by a UUID, and starts it in the project's folder.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Collection, Sequence
from pathlib import Path

STATE = Path(".snakemake")
ONLY_LOOKS = re.compile(
    r"-[a-z]*n[a-z]*|--(dry|lint|report|summary|detailed-summary|dag|rulegraph|filegraph|d3dag|list|touch|unlock|archive"
    r"|cleanup|containerize).*"
)
OF_A_RUN = re.compile(r".*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PAUSE = 10  # seconds between polls of the queue


def wait(arguments: Sequence[str], *, state: Path = STATE) -> None:
    """Wait until no job that is marked, or was submitted from this folder by another run, is left in Slurm's queue.

    Returns at once if this Snakemake command line runs no job, or if another workflow is running: the marks are then
    its own.
    """
    if only_looks(arguments) or any((state / "locks").glob("*")):
        return
    jobs = marked_jobs(state)
    while alive := sorted(left_over(_queue(), jobs, folder=state.parent.resolve())):
        print(f"waiting for Slurm jobs {', '.join(alive)}, left by a killed run; scancel ends them", flush=True)
        time.sleep(PAUSE)


def only_looks(arguments: Sequence[str]) -> bool:
    """Whether this Snakemake command line runs no job."""
    return any(ONLY_LOOKS.fullmatch(argument) for argument in arguments)


def marked_jobs(state: Path) -> set[str]:
    """The scheduler's IDs of the jobs whose outputs are marked."""
    marks = [json.loads(path.read_text()) for path in (state / "incomplete").rglob("*") if path.is_file()]
    return {mark["external_jobid"] for mark in marks if mark.get("external_jobid")}


def left_over(queue: str, marked: Collection[str], *, folder: Path) -> set[str]:
    """Of a queue, with a job's ID, name and folder in each line, the IDs of what is marked or of another run's jobs."""
    jobs = [line.split("|", 2) for line in queue.splitlines()]
    here = os.environ.get("SLURM_JOB_ID")  # where the workflow itself is a job
    return {
        number
        for number, name, where in jobs
        if number != here and (number in marked or (OF_A_RUN.fullmatch(name) and Path(where).resolve() == folder))
    }


def _queue() -> str:
    command = ["squeue", "--noheader", "--me", "--format=%A|%j|%Z"]
    while (done := subprocess.run(command, capture_output=True, text=True)).returncode:
        print(f"{' '.join(command)}: {done.stderr.strip()}; asking again", flush=True)
        time.sleep(PAUSE)
    return done.stdout
