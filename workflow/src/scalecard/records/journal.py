"""Records in a file, appended as they come, so that what was measured outlives the process that measured it."""

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
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
