"""Snakemake's lock of this folder, if the workflow that took it is dead.

A killed Snakemake leaves its lock files, and the next one stops until `snakemake --unlock`. So every workflow also
holds a lock that the kernel releases when it dies, on a file of its own, named after the kernel it runs on:

    .snakemake/scalecard-running/BOOT.RANDOM    the host's name, and Snakemake's temporary folder

The folder's lock is stale if every file there is one of this host's and nobody holds it. A file of another host proves
nothing, since not every shared file system passes locks on: what it may still hold is left alone.
"""

import atexit
import contextlib
import fcntl
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from scalecard.jobs.slurm_leftovers import only_looks

STATE = Path(".snakemake")
BOOT = Path("/proc/sys/kernel/random/boot_id")
_held: list[int] = []  # open until this process ends


def take_over(arguments: Sequence[str], *, temporary: Path, state: Path = STATE) -> None:
    """Remove the folder's lock if it is stale, with a line that says so, and enter this workflow as running.

    `temporary` is Snakemake's own folder in the temporary one. Those of dead workflows are removed.
    With `--unlock` only the entries of dead workflows go, wherever they ran: the user says that none is alive.
    """
    unlocking = "--unlock" in arguments
    if only_looks(arguments) and not unlocking:
        return
    running = state / "scalecard-running"
    running.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(running):
        alive, dead, elsewhere = _told_apart(running)
        for path in dead:
            _remove_temporary(path)
        for path in dead + elsewhere * unlocking:
            path.unlink(missing_ok=True)
        if unlocking:
            return
        if any((state / "locks").glob("*.lock")):
            _judge(alive, dead, elsewhere, state / "locks")
        _enter(running, temporary)


def _judge(alive: list[Path], dead: list[Path], elsewhere: list[Path], locks: Path) -> None:
    if dead and not alive and not elsewhere:
        shutil.rmtree(locks)
        print("The workflow that had locked this folder is dead: its lock is removed.", flush=True)
    elif elsewhere and not alive:
        print(
            f"A workflow on {_host(elsewhere[0])} has locked this folder. If it is dead, start it there again, or"
            " run `snakemake --unlock`.",
            flush=True,
        )


def _told_apart(running: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """The workflows that are alive, those that died on this host, and those of other hosts, which may be either."""
    alive, dead, elsewhere = list[Path](), list[Path](), list[Path]()
    for path in running.glob("*.*"):
        if not _is_free(path):
            alive.append(path)
        elif path.name.startswith(f"{_boot()}.") or _host(path) == platform.node():
            dead.append(path)
        else:
            elsewhere.append(path)
    return alive, dead, elsewhere


def _host(entry: Path) -> str:
    return entry.read_text().partition("\n")[0]


def _remove_temporary(entry: Path) -> None:
    """Remove the temporary folder of a dead Snakemake, if it has the name that Snakemake gives it."""
    folder = Path(entry.read_text().partition("\n")[2] or ".")
    if folder.name.startswith("snakemake"):
        shutil.rmtree(folder, ignore_errors=True)


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


@contextlib.contextmanager
def _one_at_a_time(running: Path) -> Iterator[None]:
    """Two workflows that start together look at the entries one after the other."""
    with (running / "turn").open("w") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _boot() -> str:
    """Names the running kernel, which all containers of a host share."""
    return BOOT.read_text().strip()[:13]
