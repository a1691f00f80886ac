"""Writing a file whole or not at all: readers see the old content or the new, never half of it."""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

UNFINISHED = re.compile(r"\..+\.[a-z0-9_]{8}")  # how the temporary files are named
FULL = (errno.ENOSPC, errno.EDQUOT)


class CannotWrite(OSError):
    """The file was not written; the message names it, and for want of space how much was needed."""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write to a temporary file in the same folder, flush it to disk, then rename it to `path`.

    Text is written as UTF-8. Missing folders are created. CannotWrite, an OSError, leaves the old file as it was.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                with contextlib.suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_EX)  # so that remove_unfinished() knows that it is being written
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.chmod(name, 0o644)
                os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:  # which does not name the file
        why = error.strerror or str(error)
        if error.errno in FULL:
            why += f" ({len(data) / 1000:.1f} kB are needed, {_free(path) / 1000:.1f} kB are free)"
        raise CannotWrite(f"{path}: cannot be written: {why}") from error


def remove_unfinished(paths: Iterable[Path]) -> None:
    """Remove those of these files that a process was writing when it was killed."""
    for path in paths:
        if UNFINISHED.fullmatch(path.name):
            with contextlib.suppress(OSError), path.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def _free(path: Path) -> int:
    try:
        return shutil.disk_usage(path.parent if path.parent.exists() else ".").free
    except OSError:
        return 0
