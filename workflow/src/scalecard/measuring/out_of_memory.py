"""Out of memory is a result: that point of a sweep is recorded as failed, and the others are still measured."""

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator

import torch

from scalecard.records.record import Case, Record

MESSAGES = ("out of memory", "can't allocate memory", "ALLOC_FAILED", "nable to find an engine to execute")


@contextlib.contextmanager
def caught(*, on_failure: Callable[[str], None]) -> Iterator[None]:
    """Pass an out-of-memory message to `on_failure`; re-raise anything else."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        on_failure(f"out of memory: {(str(error).splitlines() or [''])[0][:200]}")


def guarded(records: Iterable[Record], case: Case, *, metric: str = "time", unit: str = "s") -> Iterator[Record]:
    """The records of one sweep point or, if preparing it runs out of memory, one failed record that says so."""
    notes: list[str] = []
    with caught(on_failure=notes.append):
        yield from records
    for note in notes:
        yield Record.failed(case, note, metric=metric, unit=unit)


def is_out_of_memory(error: BaseException) -> bool:
    """torch.OutOfMemoryError is a RuntimeError; the CPU's allocator, cuBLAS and cuDNN raise plain ones."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in MESSAGES)


def empty_cache() -> None:
    """Give cached GPU memory back between cases."""
    if torch.cuda.is_available():
        gc.collect()  # cycles hold tensors too
        torch.cuda.empty_cache()
