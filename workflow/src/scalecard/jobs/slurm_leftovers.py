"""Jobs that a killed workflow left in Slurm's queue: they keep running, and the next start waits for them.

Snakemake marks the output of each job that it submits with the scheduler's job ID; a job that succeeds removes its
mark. A marked job would be submitted again even while it is running, because Slurm's plugin, unlike cluster-generic,
cannot adopt a running job.
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
PAUSE = 10  # seconds between polls of the queue


def wait(arguments: Sequence[str], *, state: Path = STATE) -> None:
    """Wait until no marked job is left in Slurm's queue.

    Returns at once if this Snakemake command line runs no job, or if another workflow is running: the marks are then
    its own.
    """
    if only_looks(arguments) or any((state / "locks").glob("*")):
        return
    jobs = marked_jobs(state)
    while alive := sorted(jobs & _queued()) if jobs else []:
        print(f"waiting for Slurm jobs {', '.join(alive)}, left by a killed run; scancel ends them", flush=True)
        time.sleep(PAUSE)


def only_looks(arguments: Sequence[str]) -> bool:
    """Whether this Snakemake command line runs no job."""
    return any(ONLY_LOOKS.fullmatch(argument) for argument in arguments)


def marked_jobs(state: Path) -> set[str]:
    """The scheduler's IDs of the jobs whose outputs are marked."""
    marks = [json.loads(path.read_text()) for path in (state / "incomplete").rglob("*") if path.is_file()]
    return {mark["external_jobid"] for mark in marks if mark.get("external_jobid")}


def _queued() -> set[str]:
    command = ["squeue", "--noheader", "--me", "--format=%A"]
    while (done := subprocess.run(command, capture_output=True, text=True)).returncode:
        print(f"{' '.join(command)}: {done.stderr.strip()}; asking again", flush=True)
        time.sleep(PAUSE)
    return set(done.stdout.split())
