"""Out of memory is a result: that point of a sweep is recorded as failed, and the others are still measured."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType

from scalecard.hardware.gpu_memory import is_out_of_memory
from scalecard.records.record import Case, Record


@dataclass(frozen=True, kw_only=True)
class caught(AbstractContextManager[None, bool]):  # noqa: N801 (named like contextlib's own)
    """Pass an out-of-memory message to `on_failure`; let anything else through."""

    on_failure: Callable[[str], None]

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, MemoryError | RuntimeError) or not is_out_of_memory(error):
            return False
        self.on_failure(f"out of memory: {(str(error).splitlines() or [''])[0][:200]}")
        return True


def guarded(records: Iterable[Record], case: Case, *, metric: str = "time", unit: str = "s") -> Iterator[Record]:
    """The records of one sweep point or, if preparing it runs out of memory, one failed record that says so."""
    notes: list[str] = []
    with caught(on_failure=notes.append):
        yield from records
    for note in notes:
        yield Record.failed(case, note, metric=metric, unit=unit)
