"""What is said of a machine is derived once, though tiles, sentences, tables and the figure all ask for it."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from scalecard.records.record import Result

T = TypeVar("T")


def once(derive: Callable[[Result], T]) -> Callable[[Result], T]:
    """The same function, which keeps what it made of the result that it was asked about last."""
    kept: list[tuple[Result, T]] = []

    @wraps(derive)
    def remembering(result: Result) -> T:
        if not (kept and kept[0][0] is result):
            kept[:] = [(result, derive(result))]
        return kept[0][1]

    return remembering
