"""Who counts the work of devices, wherever it runs: the devices ask here whom to tell."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Observer:
    """What counts the work of devices: entered around each piece in the thread that runs it, and told what it gets."""

    around: Callable[[], contextlib.AbstractContextManager[object]]
    received: Callable[[str, float], None]


observers: list[Observer] = []  # at most one


@contextlib.contextmanager
def observed(
    around: Callable[[], contextlib.AbstractContextManager[object]], received: Callable[[str, float], None]
) -> Iterator[None]:
    """Let the work that is submitted meanwhile be counted; one observer at a time."""
    assert not observers, "work is counted once"
    observers.append(Observer(around, received))
    try:
        yield
    finally:
        observers.clear()
