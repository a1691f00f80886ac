"""What is done as a workflow starts: it looks for room on the disk, clears up after killed runs, and shortens messages.

A killed Snakemake leaves its lock files, and the next one stops until `snakemake --unlock`. So every workflow also
holds a lock that the kernel releases when it dies, on a file of its own, named after the kernel it runs on:

    .snakemake/scalecard-running/BOOT.RANDOM    the host's name, and Snakemake's temporary folder

The folder's lock is stale if every file there is one of this host's and nobody holds it. A file of another host proves
nothing, since not every shared file system passes locks on: what it may still hold is left alone.

In Slurm's queue, the jobs of a killed workflow keep running. Slurm's plugin, unlike cluster-generic, cannot adopt them:
it would submit a job again even while it is running. So the next workflow waits until they have ended. Snakemake marks
the output of each job that it submits with the scheduler's job ID; but once the job runs, its own Snakemake writes the
mark anew, without the ID. That is why the queue is asked as well: the plugin names each job after its run, by a UUID,
and starts it in the project's folder.
"""

import atexit
import contextlib
import fcntl
import itertools
import json
import logging
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from snakemake_interface_logger_plugins.common import LogEvent

from scalecard.hardware import isolation
from scalecard.jobs.config_file import InvalidConfig
from scalecard.records.atomic import FULL, remove_unfinished

STATE = Path(".snakemake")
RESULTS = Path("results")
BOOT = Path("/proc/sys/kernel/random/boot_id")
_held: list[int] = []  # open until this process ends
ONLY_LOOKS = re.compile(
    r"-[a-z]*n[a-z]*|--(dry|lint|report|summary|detailed-summary|dag|rulegraph|filegraph|d3dag|list|touch|unlock|archive"
    r"|cleanup|containerize).*"
)
OF_A_RUN = re.compile(r".*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PAUSE = 10  # seconds between polls of the queue
NEEDED = 4 * 2**20  # bytes; results are smaller, and so are Snakemake's own temporary files
REPEATED = re.compile(
    r"Select jobs to execute\.\.\.|Execute \d+ jobs\.\.\.|Singularity containers: ignored|Using shell: .*"
    r"|Assuming unrestricted shared filesystem usage\."
)


def wait_for_slurm_jobs(arguments: Sequence[str], *, state: Path = STATE) -> None:
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


def take_over_lock(arguments: Sequence[str], *, temporary: Path, state: Path = STATE) -> None:
    """Remove the folder's lock if it is stale, with a line that says so, and enter this workflow as running.

    `temporary` is Snakemake's own folder in the temporary one. Those of dead workflows are removed.
    With `--unlock` only the entries of dead workflows go, wherever they ran: the user says that none is alive.
    """
    unlocking = "--unlock" in arguments
    if only_looks(arguments) and not unlocking:
        return
    running = state / "scalecard-running"
    running.mkdir(parents=True, exist_ok=True)
    with (running / "turn").open("w") as turn:  # two workflows that start together look one after the other
        with contextlib.suppress(OSError):
            fcntl.flock(turn, fcntl.LOCK_EX)
        known = _told_apart(running)
        for folder in (Path(path.read_text().partition("\n")[2] or ".") for path in known.dead):
            if folder.name.startswith("snakemake"):  # which Snakemake gives it
                shutil.rmtree(folder, ignore_errors=True)
        for path in known.dead + known.elsewhere * unlocking:
            path.unlink(missing_ok=True)
        if unlocking:
            return
        if any((state / "locks").glob("*.lock")):
            _remove_stale_lock(known, state / "locks")
        _enter(running, temporary)


class _Workflows(NamedTuple):
    """The entries of workflows that are alive, that died on this host, and of other hosts', which may be either."""

    alive: list[Path]
    dead: list[Path]
    elsewhere: list[Path]


def _remove_stale_lock(known: _Workflows, locks: Path) -> None:
    """If it is stale; else say who may hold it, unless somebody on this host does."""
    if known.dead and not known.alive and not known.elsewhere:
        shutil.rmtree(locks)
        print("The workflow that had locked this folder is dead: its lock is removed.", flush=True)
    elif known.elsewhere and not known.alive:
        print(
            f"A workflow on {_host(known.elsewhere[0])} has locked this folder. If it is dead, start it there again, or"
            " run `snakemake --unlock`.",
            flush=True,
        )


def _told_apart(running: Path) -> _Workflows:
    known = _Workflows(alive=[], dead=[], elsewhere=[])
    for path in running.glob("*.*"):
        if not _is_free(path):
            known.alive.append(path)
        elif path.name.startswith(f"{_boot()}.") or _host(path) == platform.node():
            known.dead.append(path)
        else:
            known.elsewhere.append(path)
    return known


def _host(entry: Path) -> str:
    return entry.read_text().partition("\n")[0]


def _is_free(path: Path) -> bool:
    """Whether nobody on this kernel holds it; where files cannot be locked it counts as held."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _enter(running: Path, temporary: Path) -> None:
    """Hold a file in the name of this process until it ends."""
    file, name = tempfile.mkstemp(dir=running, prefix=f"{_boot()}.")
    _held.append(file)
    atexit.register(Path(name).unlink, missing_ok=True)
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(file, fcntl.LOCK_EX)
    os.write(file, f"{platform.node()}\n{temporary}".encode())


def _boot() -> str:
    """Names the running kernel, which all containers of a host share."""
    return BOOT.read_text().strip()[:13]


def remove_leftovers() -> None:
    """Remove what killed runs have left, and name the folders; what a living process uses stays."""
    remove_unfinished(itertools.chain(RESULTS.rglob(".*"), STATE.glob(".scalecard-*")))
    for folder in isolation.remove_dead_folders():
        print(f"removed {folder}, left by a killed measurement", flush=True)


def check_disk_space(arguments: Sequence[str], results: Path = RESULTS) -> None:
    """Write to the temporary folder and to that of the results; InvalidConfig names the one that cannot be written.

    Returns at once if this Snakemake command line runs no job.
    """
    if only_looks(arguments):
        return
    temporary = Path(os.environ.get("TMPDIR") or tempfile.gettempdir())
    for folder, what in ((temporary, "TMPDIR, the temporary folder"), (results, "the folder of the results")):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(NEEDED))
                file.flush()
        except OSError as error:
            amounts = f" ({_amounts(folder)})" if error.errno in FULL else ""
            raise InvalidConfig(f"{folder}: {what}: {error.strerror}{amounts}") from error


def _amounts(folder: Path) -> str:
    needed = f"{NEEDED / 2**20:.0f} MiB are needed"
    try:
        return f"{needed}, {shutil.disk_usage(folder).free / 2**20:.1f} MiB are free"
    except OSError:
        return needed


class Terminal(logging.Filter):
    """A filter for Snakemake's logger. `failed` lists the logs of the jobs that failed."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop messages that repeat others, and a failed job's dozens of inputs, which hide its log."""
        if getattr(record, "event", None) == LogEvent.JOB_ERROR:
            facts = record.__dict__
            facts["input"] = []
            self.failed += facts["log"] or []
        return not REPEATED.fullmatch(str(record.msg))
