"""Folders that are full or cannot be written: one sentence, and nothing that was measured before is lost.

Needs root, for small file systems in memory.
"""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from workplace import Unexpected, Workplace, ended


@contextlib.contextmanager
def small(folder: Path, size: str) -> Iterator[None]:
    """A file system of this size in the place of the folder, with what was in it."""
    kept = folder.with_name(f"{folder.name}-kept")
    shutil.copytree(folder, kept, symlinks=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        shutil.copytree(kept, folder, dirs_exist_ok=True, symlinks=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        shutil.rmtree(kept)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder, which nobody may write, not even root."""
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "fill").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(65536))


def full_temporary_folder(place: Workplace) -> str:
    with small(place.temporary, "256k"):
        fill(place.temporary)
        return _refused(place, str(place.temporary), "No space left on device")


def full_results(place: Workplace) -> str:
    with small(place.folder / "results", "16m"):
        fill(place.folder / "results")
        return _refused(place, "results", "No space left on device")


def read_only_results(place: Workplace) -> str:
    with read_only(place.folder / "results"):
        return _refused(place, "results", "Read-only file system")


def results_that_fill_up(place: Workplace) -> str:
    """There was room at the start, and is none when the result is saved."""
    before = place.results()
    results = place.folder / "results"
    with small(results, "16m"):
        running = place.start(*place.again())
        with ended(running):
            place.wait_for(lambda: f"[{place.experiments[0]}" in place.said(), running)
            fill(results)
            if running.wait(300) == 0:
                raise Unexpected("a full disk was not noticed")
        if place.results().keys() != before.keys():  # one that was saved just before is whole, and new
            raise Unexpected(f"lost what was measured before: {place.said()[-1500:]}")
        sentence = _sentence(place, "cannot be written: No space left on device")
        (results / "fill").unlink()
        place.complete()
    return sentence


def _refused(place: Workplace, *words: str) -> str:
    """A run that must end before it starts anything, with one sentence that has these words."""
    before = place.results()
    running = place.start(*place.again())
    with ended(running):
        if running.wait(300) == 0:
            raise Unexpected("it was not noticed")
    if place.results() != before:
        raise Unexpected("lost what was measured before")
    if "Traceback" in place.said():
        raise Unexpected(f"a traceback: {place.said()[-1500:]}")
    return _sentence(place, *words)


def _sentence(place: Workplace, *words: str) -> str:
    for line in place.said().splitlines():
        if all(word in line for word in words):
            return f"said: {line.strip()}"
    raise Unexpected(f"no line says {' and '.join(words)}: {place.said()[-1500:]}")
