"""Where a measuring process spends its seconds: launching ranks, proving, trying, compiling, warming up, timing.

What is nested counts once, where it is innermost; what is in none of these is not counted. Ranks hand their own to the
process that launched them, so that a launch is what is left of it: to start, to meet, and to end.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum


class Activity(StrEnum):
    """What is done with the time."""

    TIMED = "timed"  # rounds and epochs, whose samples are kept, and windows in which energy is read
    WARM_UP = "warm-up"
    PROOF = "proof"  # building what is timed, comparing it with the plain loop, and counting what it does
    TRIAL = "trial"  # what fits the memory
    COMPILATION = "compilation"
    LAUNCH = "launch"


_seconds: dict[str, float] = {}
_open: list[float] = []  # of every activity that has begun: the seconds of what is nested in it


@contextmanager
def spent_on(activity: Activity) -> Iterator[None]:
    """Count the time of the body, without what is nested in it."""
    began = time.monotonic()
    _open.append(0.0)
    try:
        yield
    finally:
        elapsed = time.monotonic() - began
        _count({activity: elapsed - _open.pop()})
        if _open:
            _open[-1] += elapsed


def add(seconds: Mapping[str, float]) -> None:
    """Count what another process spent while this one waited for it."""
    _count(seconds)
    if _open:
        _open[-1] += sum(seconds.values())


def _count(seconds: Mapping[str, float]) -> None:
    for activity, more in seconds.items():
        _seconds[str(activity)] = _seconds.get(str(activity), 0.0) + more


def take() -> dict[str, float]:
    """The seconds by activity so far, which are then counted from zero again."""
    taken = {activity.value: _seconds[activity] for activity in Activity if activity in _seconds}
    _seconds.clear()
    return taken
