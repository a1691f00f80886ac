"""One measurement at a time on this machine, whichever workflow, user or container starts it.

The lock file lies where every user may write, so nothing about it is trusted: no link is followed, nothing but a
regular file is locked, only the process that creates it sets its mode, and what another user wrote into it is only
shown.
"""

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scalecard import progress

LOCK = Path("/tmp/scalecard.lock")  # one per machine, so not in the user's own temporary folder
SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # follow no link, wait for no reader of a FIFO
LONGEST_WAIT = 6 * 3600.0  # seconds; no experiment holds the machine for as long
PAUSE = 0.5  # seconds between two tries
REMINDER = 300.0  # seconds between two lines that say that it still waits


class UnusableLock(OSError):
    """The lock cannot be had; the message names the file and what to do."""


def lock_file() -> Path:
    """The lock file, which every user may lock; created if missing."""
    os.close(_opened()[0])
    return LOCK


@contextmanager
def machine_lock() -> Iterator[None]:
    """Hold the machine: a second workflow, or a job that outlived a killed one, must not measure at the same time.

    A process that has to wait says for which one, and gives up after LONGEST_WAIT.
    """
    file, writable = _opened()
    try:
        _wait_for(file)
        if writable:
            os.ftruncate(file, 0)
            os.pwrite(file, (os.environ.get("SCALECARD_HOLDER") or f"process {os.getpid()}").encode(), 0)
        yield
    finally:
        os.close(file)


def _wait_for(file: int) -> None:
    """Lock the file, trying again until it is free."""
    began = reminded = time.monotonic()
    while not _locked(file):
        waited = time.monotonic() - began
        if began == reminded or time.monotonic() - reminded > REMINDER:
            since = f" (for {waited / 60:.0f} min now)" if began != reminded else ""
            progress.doing(f"waiting for {_holder(file)}, which is measuring on this machine{since}")
            reminded = time.monotonic()
        if waited > LONGEST_WAIT:
            raise UnusableLock(f"{LOCK}: {_holder(file)} has held this machine for {waited / 3600:.3g} h: end it first")
        time.sleep(PAUSE)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(file: int) -> str:
    """Who says that it holds the lock: whatever stands in the file, so no more than one short printable line."""
    said = os.pread(file, 200, 0).decode(errors="replace").strip().splitlines() or [""]
    name = "".join(letter for letter in said[0] if letter.isprintable())[:60] or "another process"
    owner = os.fstat(file).st_uid
    return name if owner == os.getuid() else f"{name} (the lock file is user {owner}'s)"


def _opened() -> tuple[int, bool]:
    """The lock file, open, and whether it may be written: to lock another user's needs no permission to write."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            return _open_existing()
        with contextlib.suppress(FileExistsError):
            file = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | SAFELY)
            os.fchmod(file, 0o666)
            return file, True


def _open_existing() -> tuple[int, bool]:
    try:
        file, writable = os.open(LOCK, os.O_RDWR | SAFELY), True
    except FileNotFoundError:
        raise
    except PermissionError:
        file, writable = os.open(LOCK, os.O_RDONLY | SAFELY), False
    except OSError as error:  # a link, a socket or a folder
        raise _unusable() from error
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:  # a second name may be that of any file of ours
        os.close(file)
        raise _unusable()
    return file, writable


def _unusable() -> UnusableLock:
    owner = LOCK.lstat().st_uid
    return UnusableLock(
        f"{LOCK}: not an ordinary file, so it cannot be the lock by which measurements on this machine take turns. User"
        f" {owner} has put it there: it must be removed"
    )
