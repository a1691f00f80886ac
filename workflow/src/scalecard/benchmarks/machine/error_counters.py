"""What the hardware's error counters say of a load: as many as before it, or more."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scalecard.hardware import error_counters
from scalecard.records.record import Case, Record


@contextmanager
def watched() -> Iterator[Callable[[], list[Record]]]:
    """What is called at the end returns a record of each counter: its value before, and now."""
    before = error_counters.read()
    with error_counters.counting_xids() as xids:

        def records() -> list[Record]:
            after = error_counters.read()
            known = {key: [float(before[key]), float(after[key])] for key in before if key in after}
            known |= {(("device", index), "XID"): [0.0, float(count)] for index, count in xids().items()}
            return [_record(*key, samples) for key, samples in known.items()] or [_none()]

        yield records


def _record(place: error_counters.Place, counter: str, samples: list[float]) -> Record:
    kind, which = place
    case: Case = {"part": "counters", kind: which, "counter": counter}
    return Record(case=case, metric="errors", unit="count", samples=[samples])


def _none() -> Record:
    note = "no GPU and no InfiniBand here that counts errors"
    return Record.skipped({"part": "counters"}, note, metric="errors", unit="count")
