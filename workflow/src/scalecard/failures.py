"""Out of memory is a result: that point of a sweep failed and says so, and the others are measured."""

import contextlib
from collections.abc import Callable, Iterable, Iterator

from scalecard.schema import Case, Record


@contextlib.contextmanager
def out_of_memory(told: Callable[[str], None]) -> Iterator[None]:
    """Tell what was said where memory runs out; any other exception goes on."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        told(f"out of memory: {(str(error).splitlines() or [''])[0][:200]}")


def guarded(records: Iterable[Record], case: Case, *, metric: str = "time", unit: str = "s") -> Iterator[Record]:
    """The records of one sweep point, or, where preparing it runs out of memory, one failed record that says so."""
    notes: list[str] = []
    with out_of_memory(notes.append):
        yield from records
    for note in notes:
        yield Record(case=case, metric=metric, unit=unit, status="failed", note=note)


def is_out_of_memory(error: BaseException) -> bool:
    """torch.OutOfMemoryError is a RuntimeError; the CPU's allocator, cuBLAS and cuDNN raise plain ones."""
    said = ("out of memory", "can't allocate memory", "ALLOC_FAILED", "nable to find an engine to execute")
    return isinstance(error, MemoryError) or any(words in str(error) for words in said)
