"""Reading a file from storage, past the page cache where the file system allows that."""

import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from scalecard.measuring.case_variant import Subject
from scalecard.measuring.counting import count
from scalecard.records.record import Check

CHUNK = 2**20  # bytes


@contextmanager
def file_of(folder: Path, size: int) -> Iterator[tuple[Path, int]]:
    """A file of random bytes on the storage of this folder, and their CRC-32; OSError if there is no room for it."""
    checksum = 0
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".scalecard-") as file:
        for written in range(0, size, CHUNK):
            part = os.urandom(min(CHUNK, size - written))
            checksum = zlib.crc32(part, checksum)
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
        yield Path(file.name), checksum


def subject(path: Path, checksum: int) -> Subject:
    """Reads the file once, from beginning to end, in pieces of a megabyte."""
    buffer = bytearray(CHUNK)

    def prove() -> Iterator[Check]:
        found = 0
        for length in _pieces(path, buffer):
            found = zlib.crc32(memoryview(buffer)[:length], found)
        yield Check(name="CRC-32 of what was read", dtype="uint8", difference=float(found != checksum), tolerance=0.0)

    return Subject(work=partial(_read, path, buffer), prove=prove, expected={"read bytes": path.stat().st_size})


def _read(path: Path, buffer: bytearray) -> None:
    for length in _pieces(path, buffer):
        count("read bytes", length)


def _pieces(path: Path, buffer: bytearray) -> Iterator[int]:
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while length := file.readinto(buffer):
            yield length
