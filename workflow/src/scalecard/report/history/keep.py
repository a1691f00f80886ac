"""Keeps the present results of a platform as a night of its history: whole or not at all, and nothing twice."""

import contextlib
import fcntl
import gzip
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scalecard.records import strict_json
from scalecard.records.atomic import write_atomically
from scalecard.records.files import InvalidResult, is_result_file, parse, refuse_mixed_machines
from scalecard.records.record import Result
from scalecard.report.history import index
from scalecard.report.history.layout import HISTORY, night_name


@dataclass(frozen=True, kw_only=True)
class Night:
    """What keep() kept; `folder` is None if every result had been kept before. `left_out`: earlier ones, unreadable."""

    folder: Path | None
    experiments: list[str]
    left_out: list[str]


def keep(platform: Path) -> Night:
    """Copy the results that were not kept before into a new night of this folder's history.

    Nothing that was kept is overwritten. ValueError if the folder has no results, or one that cannot be used.
    """
    texts = {path.stem: _checked(path) for path in sorted(platform.glob("*.json")) if is_result_file(path)}
    if not texts:
        raise ValueError(f"'{platform}': no result files in it")
    refuse_mixed_machines((result for _, result in texts.values()), str(platform))
    with _alone(platform / HISTORY) as history:
        entries, left_out = index.refreshed(platform)
        known = {(entry.experiment, entry.finished) for entry in entries}
        new = {name: each for name, each in texts.items() if (name, each[1].finished) not in known}
        if not new:
            index.save(entries, platform)
            return Night(folder=None, experiments=[], left_out=left_out)
        night = _name(history, new)
        entries += [index.entry_of(result, night) for _, result in new.values()]  # before anything is written
        folder = _write(history, {name: text for name, (text, _) in new.items()}, night)
        index.save(entries, platform)
    return Night(folder=folder, experiments=list(new), left_out=left_out)


def _checked(path: Path) -> tuple[str, Result]:
    """A result's text as it is, and the result; InvalidResult if it cannot be used or is a copy from elsewhere."""
    try:
        text = strict_json.read(path)
    except strict_json.Refused as error:
        raise InvalidResult(path, f"{error}.") from error
    result = parse(text, str(path))
    if (result.platform, result.experiment) != (path.resolve().parent.name, path.stem):
        raise InvalidResult(path, f"it is of '{result.experiment}' on '{result.platform}': a copy.")
    return text, result


@contextlib.contextmanager
def _alone(history: Path) -> Iterator[Path]:
    """One process at a time keeps; what a killed one left half done is removed."""
    history.mkdir(exist_ok=True)
    handle = os.open(history, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems lock no folders
            fcntl.flock(handle, fcntl.LOCK_EX)
            for unfinished in history.glob(".*Z*"):
                shutil.rmtree(unfinished, ignore_errors=True)
        yield history
        os.fsync(handle)
    finally:
        os.close(handle)


def _name(history: Path, new: dict[str, tuple[str, Result]]) -> str:
    """By the last moment of its results; a second night of the same second has a number."""
    name = night_name(max((result.finished for _, result in new.values()), key=night_name))
    taken = [path.name for path in history.glob(f"{name}*")]
    return f"{name}-{len(taken) + 1}" if taken else name


def _write(history: Path, texts: dict[str, str], name: str) -> Path:
    """Into a folder that nobody reads, which then gets its name in one step."""
    unfinished = Path(tempfile.mkdtemp(dir=history, prefix=f".{name}."))
    try:
        for experiment, text in texts.items():
            write_atomically(unfinished / f"{experiment}{index.KEPT}", gzip.compress(text.encode(), mtime=0))
        unfinished.chmod(0o755)
        return unfinished.rename(history / name)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
