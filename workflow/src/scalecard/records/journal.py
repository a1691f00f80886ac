"""Records in a file, appended as they come, so that they outlive their process; several processes' merged."""

import json
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scalecard.records.record import Record


@dataclass(frozen=True)
class Journal:
    """A file of records that one process appends to and another one reads, at the latest once the first has ended."""

    path: Path

    def keep(self, records: Iterable[Record]) -> list[Record]:
        """Write each record as soon as it is there, and return all of them."""
        kept = []
        for record in records:
            with self.path.open("ab") as file:
                pickle.dump(record, file)
            kept.append(record)
        return kept

    def read(self) -> list[Record]:
        """What was kept, without a last record that was cut short; empty if nothing was."""
        kept: list[Record] = []
        try:
            with self.path.open("rb") as file:
                while True:
                    kept.append(pickle.load(file))
        except (EOFError, FileNotFoundError, pickle.UnpicklingError):
            return kept


def merged(processes: Sequence[Sequence[Record]]) -> list[Record]:
    """One record per case and metric, in the order of the first process that has it; every sample is kept.

    A case that some processes could not measure keeps the samples of the others, and its note says what happened.
    """
    found: dict[str, list[Record]] = {}
    for records in processes:
        for record in records:
            found.setdefault(json.dumps([record.metric, record.case], sort_keys=True), []).append(record)
    return [_merge(records) for records in found.values()]


def _merge(records: Sequence[Record]) -> Record:
    measured = [record for record in records if record.status == "ok"]
    if not measured:
        first = records[0]
        notes = (record.note if record.reason is first.reason else record.why for record in records)
        return replace(first, note="; ".join(dict.fromkeys(notes)))
    lost = [f"process {number}: {r.why}" for number, r in enumerate(records, 1) if r.status != "ok"]
    return replace(
        measured[0],
        samples=[samples for record in measured for samples in record.samples],
        telemetry=[entry for record in measured for entry in record.telemetry],
        runs=[run for record in measured for run in record.runs],
        note="; ".join(lost) or measured[0].note,
    )
