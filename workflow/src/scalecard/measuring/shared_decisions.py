"""What is decided alike by the ranks that measure together (`Ranks`), and by all processes of a run.

The records of a run's processes are merged case by case, so all of them must measure the same cases. What depends on
noise, such as where to cut a model whose blocks were timed, is therefore decided once, by the first process.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from scalecard.records.record import Reason

FOLDER = "SCALECARD_DECISIONS"  # inherited by the processes that measure
THIS_RUN = "in-this-run-"  # begins the names of what the next run decides anew
PROCESS = "SCALECARD_PROCESS"  # the number of the present one


class Ranks(Protocol):
    """What timing needs from the other processes: to start together, and to agree on the slowest.

    One of them leads: it watches the machine's state for all of them. One that is alone has nobody waiting for it.
    """

    @property
    def leads(self) -> bool:
        return True

    @property
    def alone(self) -> bool:
        return True

    @property
    def spans_nodes(self) -> bool:
        return False

    @property
    def failed(self) -> Mapping[str, tuple[str, Reason]]:
        """What ended an earlier launch of them, by the name with which it began; it is not done again."""
        return {}

    def begin(self, name: str, /) -> object:
        """Note what is done from here on; "": nothing that a failure would be blamed on."""
        return None

    def barrier(self) -> None:
        """Wait until all of them are here."""
        return

    def maximum(self, values: Sequence[float]) -> list[float]:
        """Of every value, the largest that one of them has."""
        return list(values)


class _Alone(Ranks):
    pass


ALONE: Ranks = _Alone()


def begin(folder: Path) -> None:
    """This process, and those that it starts, keep decisions in this folder, with what was decided there before."""
    for path in folder.glob(f"{THIS_RUN}*"):
        path.unlink()
    os.environ[FOLDER] = str(folder)


def begin_process(number: int) -> None:
    """The process that is started next is this one of the run's."""
    os.environ[PROCESS] = str(number)


def first(name: str) -> bool:
    """Whether this is the first process of the run that asks; what does not vary is measured by that one alone."""
    number = int(os.environ.get(PROCESS) or 1)
    mine: bool = decided(f"{name}, process", lambda: number) == number
    return mine


def is_decided(name: str) -> bool:
    """Whether a process of this run has decided under this name."""
    path = _path(name)
    return path is not None and path.exists()


def _path(name: str) -> Path | None:
    folder = os.environ.get(FOLDER)
    return Path(folder, f"{name}.decision.json") if folder else None


def decided(name: str, decide: Callable[[], Any]) -> Any:
    """What was decided under this name or, if nothing was, what decide() returns, in the types of JSON."""
    path = _path(name)
    if path and path.exists():
        return json.loads(path.read_text())
    decision = json.loads(json.dumps(decide()))
    if path:
        own = path.with_name(f".{os.getpid()}-{path.name}")  # so that what others see is complete
        own.write_text(json.dumps(decision))
        try:
            os.link(own, path)
        except FileExistsError:  # another process was faster
            return json.loads(path.read_text())
        finally:
            own.unlink()
    return decision
