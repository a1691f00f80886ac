"""What is being measured, how far it is and the time left: one line a case, and a sign of life every few seconds."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
SILENCE = 8.0  # seconds without a line before a sign of life is given


class _State:
    prefix = "scalecard"
    doing = "starting"
    detail = ""
    since = 0.0
    last_line = 0.0
    quiet = False


def say(text: str) -> None:
    """Print a line now; every line carries the experiment's name."""
    _State.last_line = time.monotonic()
    if not _State.quiet:
        print(f"[{_State.prefix}] {text}", flush=True, file=sys.stdout)


def join(prefix: str, *, quiet: bool) -> None:
    """Set the name on this process's lines; ranks other than the first are quiet."""
    _State.prefix, _State.quiet = prefix, quiet


def doing(text: str) -> None:
    """Say what starts now."""
    _State.doing, _State.detail, _State.since = text, "", time.monotonic()
    say(text)


def detail(text: str) -> None:
    """How far what is being done is: shown with the next sign of life."""
    _State.detail = f", {text}"


def cases(items: Sequence[T], *, label: Callable[[T], str]) -> Iterator[T]:
    """Iterate, announcing each item with its number and an estimate of the time left."""
    started = time.monotonic()
    for index, item in enumerate(items):
        spent = time.monotonic() - started
        left = f", about {spent / index * (len(items) - index):.0f} s left" if index else ""
        doing(f"{index + 1}/{len(items)} {label(item)}{left}")
        yield item


@contextmanager
def signs_of_life(prefix: str) -> Iterator[None]:
    """While this runs, nothing is silent for longer than about 8 s."""
    _State.prefix, stop = prefix, threading.Event()

    def watch() -> None:
        while not stop.wait(1.0):
            if time.monotonic() - _State.last_line > SILENCE:
                say(f"... {_State.doing} ({time.monotonic() - _State.since:.0f} s{_State.detail})")

    thread = threading.Thread(target=watch, daemon=True)
    _State.since = time.monotonic()
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
