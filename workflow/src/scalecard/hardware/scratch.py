"""The temporary folder of one measurement, and the removal of what a killed one has left.

All that the processes of a measurement put into the temporary folder goes into one folder of its own, and their
semaphores in /dev/shm carry its name. The measuring process holds a lock in the folder, which the kernel releases when
it dies: a folder whose lock is free belongs to nobody any more.
"""

import fcntl
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "scalecard-run-"
SEMAPHORES = Path("/dev/shm")
BEING_MADE = 60  # seconds after which a folder without a lock is not about to get one


@contextmanager
def own_folder() -> Iterator[Path]:
    """A temporary folder for this process and those that it starts; removed in the end, or by the next start."""
    remove_dead()
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    with (folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        _use(str(folder), str(folder), f"/{folder.name}")
        try:
            yield folder
        finally:
            _use(*before, "/mp")
            shutil.rmtree(folder, ignore_errors=True)


def remove_dead(parent: Path | None = None) -> list[Path]:
    """Remove the folders of dead measurements of this user, and their semaphores; return the folders."""
    dead = [path for path in (parent or Path(tempfile.gettempdir())).glob(f"{PREFIX}*") if _is_dead(path)]
    for folder in dead:
        for semaphore in SEMAPHORES.glob(f"sem.{folder.name}-*"):
            semaphore.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    return dead


def _use(default: str | None, variable: str | None, semaphores: str) -> None:
    """Where this process and those that it starts make temporary files, and how they name their semaphores."""
    tempfile.tempdir = default
    if variable is None:
        os.environ.pop("TMPDIR", None)
    else:
        os.environ["TMPDIR"] = variable
    multiprocessing.current_process()._config["semprefix"] = semaphores  # type: ignore[attr-defined]


def _is_dead(folder: Path) -> bool:
    """Whether a folder is this user's and nobody holds its lock."""
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return False
        with (folder / "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return _age(folder) > BEING_MADE
    except OSError:
        return False


def _age(folder: Path) -> float:
    try:
        return abs(time.time() - folder.stat().st_mtime)
    except OSError:
        return 0.0
