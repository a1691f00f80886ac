"""Whether a process belongs to this measurement or to somebody else."""

import contextlib
import ctypes
import os
import signal

import psutil

ROOT_PID = "SCALECARD_ROOT_PID"


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
