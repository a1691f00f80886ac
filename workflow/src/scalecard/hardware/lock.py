"""One measurement at a time on this machine, whichever workflow, user or container starts it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from scalecard import progress

LOCK = Path("/tmp/scalecard.lock")  # one per machine, so not in the user's own temporary folder


def lock_file() -> Path:
    """The lock file, which every user may lock; created if missing."""
    if not LOCK.exists():
        LOCK.touch()
        LOCK.chmod(0o666)
    return LOCK


@contextmanager
def machine_lock() -> Iterator[None]:
    """Hold the machine: a second workflow, or a job that outlived a killed one, must not measure at the same time.

    A process that has to wait says for which one.
    """
    with _opened() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.read().strip() or "another process"
            progress.doing(f"waiting for {holder}, which is measuring on this machine")
            fcntl.flock(file, fcntl.LOCK_EX)
        if file.writable():
            file.seek(0)
            file.truncate()
            file.write(os.environ.get("SCALECARD_HOLDER") or f"process {os.getpid()}")
            file.flush()
        yield


def _opened() -> TextIO:
    """The lock file, open. Another user may have created it, but locking it needs no write permission."""
    try:
        return lock_file().open("r+")
    except PermissionError:
        return LOCK.open()
