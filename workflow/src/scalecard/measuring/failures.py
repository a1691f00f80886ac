"""What fails costs its own case, and the others are still measured: which errors are recorded, and which go on.

Too little memory, and a check that failed on all ranks, are recorded wherever they happen. An error that one rank may
have seen alone is recorded only where no other rank waits for it: otherwise it ends the launch, whose ranks are
recorded as failed.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from scalecard import progress
from scalecard.hardware.failures import first_line, reason_of
from scalecard.measuring.proof import Void
from scalecard.records import kept_groups
from scalecard.records.axes import Case
from scalecard.records.record import Reason, Record, Unit

ON_ALL_RANKS = (Reason.OUT_OF_MEMORY, Reason.NOT_PROVEN)


@contextmanager
def caught(*, on_failure: Callable[[str, Reason], object], alone: bool) -> Iterator[None]:
    """Pass what an error says, and the reason, to `on_failure`; let errors through that end the launch.

    `alone`: no other rank takes part.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        reason = reason_of(error)
        on_all = reason in ON_ALL_RANKS and not isinstance(error, Void)
        if not (on_all or (alone and reason is not Reason.ERROR)):
            raise
        note = first_line(error)
        if reason is not Reason.OUT_OF_MEMORY:
            progress.say(f"failed: {reason}: {note}")
        on_failure(note, reason)


def guarded(records: Iterable[Record], case: Case, *, metric: str = "time", unit: Unit = "s") -> Iterator[Record]:
    """The records of one sweep point or, if preparing it runs out of memory, one failed record that says so.

    They are a group: what an earlier run kept of it is not measured again.
    """
    return kept_groups.measured_once([case, metric], _guarded(records, case, metric, unit))


def _guarded(records: Iterable[Record], case: Case, metric: str, unit: Unit) -> Iterator[Record]:
    failures: list[tuple[str, Reason]] = []
    with caught(on_failure=lambda *failure: failures.append(failure), alone=False):
        yield from records
    for note, reason in failures:
        yield Record.failed(case, note, reason=reason, metric=metric, unit=unit)
