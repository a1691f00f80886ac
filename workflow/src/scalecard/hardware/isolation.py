"""Keeps one measurement apart from others: the machine's lock, a temporary folder of its own, and its own processes.

The lock file lies where every user may write, so nothing about it is trusted: no link is followed, nothing but a
regular file is locked, only the process that creates it sets its mode, and what another user wrote into it is only
shown.

All that the processes of a measurement put into the temporary folder goes into one folder of its own, and their
semaphores in /dev/shm carry its name. The measuring process holds a lock in the folder, which the kernel releases when
it dies: a folder whose lock is free belongs to nobody any more.
"""

import contextlib
import ctypes
import fcntl
import multiprocessing
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from scalecard import progress

LOCK = Path("/tmp/scalecard.lock")  # one per machine, so not in the user's own temporary folder
SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # follow no link, wait for no reader of a FIFO
LONGEST_WAIT = 6 * 3600.0  # seconds; no experiment holds the machine for as long
PAUSE = 0.5  # seconds between two tries
REMINDER = 300.0  # seconds between two lines that say that it still waits
SCRATCH = "scalecard-run-"  # begins the name of every measurement's temporary folder
SEMAPHORES = Path("/dev/shm")
BEING_MADE = 60  # seconds after which a folder without a lock is not about to get one
ROOT_PID = "SCALECARD_ROOT_PID"

_own = list[Path]()  # this process's temporary folder, if it has one


class UnusableLock(OSError):
    """The lock cannot be had; the message names the file and what to do."""


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """These variables of the environment meanwhile; afterwards they are as before."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})


def make_lock_file() -> None:
    """Create the lock file, which every user may lock, if it is missing."""
    os.close(_opened()[0])


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


def machine_is_free() -> bool:
    """Whether nothing holds the machine at this moment."""
    file, _ = _opened()
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


def _wait_for(file: int) -> None:
    """Lock the file, trying again until it is free."""
    began = reminded = time.monotonic()
    while True:
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        waited = time.monotonic() - began
        if began == reminded or time.monotonic() - reminded > REMINDER:
            since = f" (for {waited / 60:.0f} min now)" if began != reminded else ""
            progress.doing(f"waiting for {_holder(file)}, which is measuring on this machine{since}")
            reminded = time.monotonic()
        if waited > LONGEST_WAIT:
            raise UnusableLock(f"{LOCK}: {_holder(file)} has held this machine for {waited / 3600:.3g} h: end it first")
        time.sleep(PAUSE)


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


@contextmanager
def own_folder() -> Iterator[Path]:
    """A temporary folder for this process and those that it starts; removed in the end, or by the next start.

    Within one there is no other.
    """
    if _own:
        yield _own[0]
        return
    remove_dead_folders()
    before, of_semaphores = tempfile.tempdir, multiprocessing.current_process()._config  # type: ignore[attr-defined]
    folder = Path(tempfile.mkdtemp(prefix=SCRATCH))
    with (folder / "lock").open("w") as held, variables({"TMPDIR": str(folder)}):
        fcntl.flock(held, fcntl.LOCK_EX)
        tempfile.tempdir, of_semaphores["semprefix"] = str(folder), f"/{folder.name}"
        _own.append(folder)
        try:
            yield folder
        finally:
            _own.clear()
            tempfile.tempdir, of_semaphores["semprefix"] = before, "/mp"
            shutil.rmtree(folder, ignore_errors=True)


def remove_dead_folders(parent: Path | None = None) -> list[Path]:
    """Remove the folders of dead measurements of this user, and their semaphores; return the folders."""
    dead = [path for path in (parent or Path(tempfile.gettempdir())).glob(f"{SCRATCH}*") if _is_dead(path)]
    for folder in dead:
        for semaphore in SEMAPHORES.glob(f"sem.{folder.name}-*"):
            semaphore.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    return dead


def _is_dead(folder: Path) -> bool:
    """Whether a folder is this user's and nobody holds its lock."""
    try:
        found = folder.lstat()
        if stat.S_ISLNK(found.st_mode) or found.st_uid != os.getuid():
            return False
        if not (folder / "lock").exists():
            return abs(time.time() - found.st_mtime) > BEING_MADE
        with (folder / "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:  # it is held, or gone meanwhile
        return False


def claim() -> None:
    """Make this process the root of the measurement: it and its descendants count as ours from now on."""
    os.environ[ROOT_PID] = str(os.getpid())


def is_ours(pid: int) -> bool:
    """Whether a process belongs to this measurement; one that cannot be seen from here does not."""
    root = int(os.environ.get(ROOT_PID, os.getpid()))
    try:
        return root == pid or any(parent.pid == root for parent in psutil.Process(pid).parents())
    except psutil.Error:
        return False


def stopped_siblings() -> list[int]:
    """The process IDs of those that this process's parent started and that are stopped, by a signal or a debugger."""
    stopped = []
    for sibling in psutil.Process(os.getppid()).children():
        with contextlib.suppress(psutil.Error):
            if sibling.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
                stopped.append(sibling.pid)
    return stopped


def kill(pid: int) -> None:
    """End a process, also one that is stopped. It may have ended by itself."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies: an orphan would disturb the next measurement."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
