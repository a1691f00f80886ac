"""JSON as our files use it: one value, finite numbers, unique keys, printable text, and little nesting.

Files come from other machines and from other people. What passes here can be walked, computed with, and printed on a
terminal or a page; whether it is a result, the schema says.
"""

import json
import math
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MOST_BYTES = 2**28  # the largest result of 8 GPUs has some MB
MOST_NESTED = 16  # a GPU's clock in the telemetry of a record is 10 deep
TOO_DEEP = f"is nested more than {MOST_NESTED} deep"
LARGEST = 1e30
# Control characters (a terminal obeys them), marks that reverse the direction of writing, and halves of characters.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


class Refused(ValueError):
    """What is wrong, and `path`: the keys and indices that lead to it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.path: list[str | int] = []


def read(path: Path) -> str:
    """The text of a regular file; Refused says why it cannot be read, without naming it."""
    try:
        # Opening a FIFO would otherwise wait for its writer.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise Refused("is no regular file")
            if found.st_size > MOST_BYTES:
                raise Refused(f"has {found.st_size} bytes, more than the {MOST_BYTES} that are read")
            return file.read().decode()
    except OSError as error:
        raise Refused(f"cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise Refused(f"is not UTF-8 text (byte {error.start})") from error


def loads(text: str) -> Any:
    """The value; Refused says where it is not what the module's docstring says."""
    if not text.strip():
        raise Refused("is empty")
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except RecursionError as error:
        raise Refused(TOO_DEEP) from error
    except json.JSONDecodeError as error:
        raise Refused(f"is not readable JSON ({error})") from error
    except Refused:
        raise
    except ValueError as error:  # an integer of more than 4300 digits
        raise Refused("has a number of thousands of digits") from error
    _check(value, 0)
    return value


def load_object(path: Path) -> dict[str, Any]:
    """The JSON object in a small file of ours; ValueError names the file if there is none in it."""
    try:
        value = loads(read(path))
        if not isinstance(value, dict):
            raise Refused("holds no JSON object")
    except Refused as error:
        raise ValueError(f"{printable(path)}: {error}; remove it, and run the workflow again") from error
    return value


def printable(value: object) -> str:
    """The text, with what a terminal would obey written as an escape."""
    return UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), str(value))


def json_path(path: Iterable[str | int]) -> str:
    """'$.records[0].case', as in the messages of jsonschema."""
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{printable(part)}" for part in path)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise Refused(f"has the key {_quoted(next(key for key in keys if keys.count(key) > 1))} twice in one object")
    return found


def _check(value: Any, depth: int) -> None:
    """Refused, with its path, for the first part that is not finite, not printable, or too deep."""
    if isinstance(value, float | int):
        if not abs(value) <= LARGEST:  # nor is NaN
            raise Refused(f"{value if isinstance(value, float) else 'a whole number'} is not between ±{LARGEST:g}")
    elif isinstance(value, str):
        if UNPRINTABLE.search(value):
            raise Refused(f"{_quoted(value)} has control characters")
    elif isinstance(value, list | dict):
        if depth == MOST_NESTED:
            raise Refused(TOO_DEEP)
        if set(map(type, value)) == {float} and all(map(math.isfinite, value)) and max(map(abs, value)) <= LARGEST:
            return  # samples, which are most of a result
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            try:
                if isinstance(key, str):
                    _check(key, depth)
                _check(part, depth + 1)
            except Refused as error:
                error.path.insert(0, key)
                raise


def _quoted(text: str, most: int = 60) -> str:
    return f"'{printable(text[:most])}{'...' if len(text) > most else ''}'"
