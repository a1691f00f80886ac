"""Progress on the terminal while something is measured: one line per case, and a sign of life every few seconds."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
SILENCE = 8.0  # seconds without a line before a sign of life is given
PLACE, PREFIX = "SCALECARD_PLACE", "SCALECARD_PREFIX"  # inherited by the processes that measure


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


def counted(number: int, noun: str) -> str:
    """'1 case', '3 cases' or '3 batches'."""
    ending = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}{ending}"


def set_place(place: str) -> None:
    """Show '2 of 9' after the experiment's name on every line, or nothing if empty."""
    os.environ[PLACE] = place


def join(experiment: str, *, quiet: bool) -> None:
    """Start the lines of this process, and of those that it starts, with the experiment's name."""
    place = os.environ.get(PLACE)
    os.environ[PREFIX] = f"{experiment}, {place}" if place else experiment
    inherit(quiet=quiet)


def inherit(*, quiet: bool) -> None:
    """Take over the line prefix of the process that started this one. Ranks other than the first are quiet."""
    _State.prefix, _State.quiet = os.environ.get(PREFIX, _State.prefix), quiet


def doing(text: str) -> None:
    """Announce what starts now."""
    _State.doing, _State.detail, _State.since = text, "", time.monotonic()
    say(text)


def detail(text: str) -> None:
    """Set the progress of the current step, shown with the next sign of life."""
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
def signs_of_life() -> Iterator[None]:
    """While this runs, the terminal is never silent for longer than about 8 s."""
    stop = threading.Event()

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
