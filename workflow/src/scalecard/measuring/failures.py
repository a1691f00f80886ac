"""What fails costs its own case, and the others are still measured: which errors are recorded, and which go on.

Too little memory, and a check that failed on all ranks, are recorded wherever they happen. An error that one rank may
have seen alone is recorded only where no other rank waits for it: otherwise it ends the launch, whose ranks are
recorded as failed.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType

from scalecard import progress
from scalecard.hardware.failures import first_line, reason_of
from scalecard.measuring.proof import Void
from scalecard.records.record import Case, Reason, Record, Unit

OnFailure = Callable[[str, Reason], None]
ON_ALL_RANKS = (Reason.OUT_OF_MEMORY, Reason.NOT_PROVEN)


@dataclass(frozen=True, kw_only=True)
class caught(AbstractContextManager[None, bool]):  # noqa: N801 (named like contextlib's own)
    """Pass what an error says, and the reason, to `on_failure`; let errors through that end the launch.

    `alone`: no other rank takes part.
    """

    on_failure: OnFailure
    alone: bool

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, MemoryError | RuntimeError):
            return False
        reason = reason_of(error)
        on_all = reason in ON_ALL_RANKS and not isinstance(error, Void)
        if not (on_all or (self.alone and reason is not Reason.ERROR)):
            return False
        note = first_line(error)
        if reason is not Reason.OUT_OF_MEMORY:
            progress.say(f"failed: {reason}: {note}")
        self.on_failure(note, reason)
        return True


def guarded(records: Iterable[Record], case: Case, *, metric: str = "time", unit: Unit = "s") -> Iterator[Record]:
    """The records of one sweep point or, if preparing it runs out of memory, one failed record that says so."""
    notes: list[tuple[str, Reason]] = []
    with caught(on_failure=lambda *failure: notes.append(failure), alone=False):
        yield from records
    for note, reason in notes:
        yield Record.failed(case, note, reason=reason, metric=metric, unit=unit)
