"""Jobs that a killed workflow left in Slurm's queue: they go on, and the next start waits for them.

Snakemake marks the output of each job that it submits with the scheduler's job number; a job that succeeds removes its
own mark. What is still marked would be submitted again although it may be running, because Slurm's plugin, unlike
cluster-generic, cannot adopt a running job.
"""

import json
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

STATE = Path(".snakemake")
ONLY_LOOKS = re.compile(
    r"-[a-z]*n[a-z]*|--(dry|lint|report|summary|detailed-summary|dag|rulegraph|filegraph|d3dag|list|touch|unlock|archive"
    r"|cleanup|containerize).*"
)
PAUSE = 10  # seconds between two looks at the queue


def wait(arguments: Sequence[str], *, state: Path = STATE) -> None:
    """Return when no marked job is in Slurm's queue any more.

    Returns at once where this Snakemake command line runs no job, and while another workflow is running, whose marks
    they are.
    """
    if only_looks(arguments) or any((state / "locks").glob("*")):
        return
    jobs = marked_jobs(state)
    while alive := sorted(jobs & _queued()) if jobs else []:
        print(f"waiting for Slurm's jobs {', '.join(alive)}, which a killed run left; scancel ends them", flush=True)
        time.sleep(PAUSE)


def only_looks(arguments: Sequence[str]) -> bool:
    """Whether this Snakemake command line runs no job."""
    return any(ONLY_LOOKS.fullmatch(argument) for argument in arguments)


def marked_jobs(state: Path) -> set[str]:
    """The scheduler's numbers of the jobs whose outputs are marked."""
    marks = [json.loads(path.read_text()) for path in (state / "incomplete").rglob("*") if path.is_file()]
    return {mark["external_jobid"] for mark in marks if mark.get("external_jobid")}


def _queued() -> set[str]:
    command = ["squeue", "--noheader", "--me", "--format=%A"]
    while (done := subprocess.run(command, capture_output=True, text=True)).returncode:
        print(f"{' '.join(command)}: {done.stderr.strip()}; asking again", flush=True)
        time.sleep(PAUSE)
    return set(done.stdout.split())
