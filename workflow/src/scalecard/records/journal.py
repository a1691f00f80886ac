"""Records in files while they are measured: they outlive their process, and a run that was ended.

A journal has the records of one process as they come. A group is what `measured_once` is given: cases that are timed in
the same rounds, or all that one launch of ranks measures. It is kept, whole, as soon as it was measured, in a file for
each process of the run, so that the next run measures only what is missing. If anything changes that it was measured
with, nothing is kept. A group in which something failed or had no time is measured again.
"""

import contextlib
import json
import pickle
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from scalecard import progress
from scalecard.records.atomic import write_atomically
from scalecard.records.record import Reason, Record

UNFINISHED = "unfinished"  # in a platform's folder, with one for each experiment
CONDITIONS = "conditions.json"
DISTURBANCES = "disturbances.jsonl"  # a line for each run that began in the folder
_RECORDS = TypeAdapter(list[Record])


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


def prepare_folder(folder: Path, conditions: Mapping[str, Any]) -> bool:
    """Whether groups can be kept in this folder, which then has those alone that were measured under `conditions`."""
    text, header = json.dumps(conditions, sort_keys=True, indent=1), folder / CONDITIONS
    try:
        if not (header.exists() and header.read_text() == text):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            write_atomically(header, text)
    except OSError:  # saving the result will say what is wrong with the disk
        return False
    return True


def remember_disturbances(folder: Path, began: str, disturbances: Sequence[str]) -> None:
    """What a run found that began at this moment; a later result that has groups of that run tells them."""
    with contextlib.suppress(OSError), (folder / DISTURBANCES).open("a") as file:
        file.write("\n" + json.dumps({"began": began, "disturbances": disturbances}))


def disturbances_of(folder: Path, runs: Collection[str]) -> Iterator[str]:
    """What was remembered of runs, by the moments when they began."""
    for line in _complete_lines(folder / DISTURBANCES):
        if line["began"] in runs:
            yield from (f"run of {line['began']}: {text}" for text in line["disturbances"])


def remove_folder(folder: Path) -> None:
    """The result is complete, and so needs none of them."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # another experiment's are there
        folder.parent.rmdir()


def of_run(record: Record, began: str) -> Record:
    """With the moment when the run began that took its samples, unless an earlier one did."""
    return record if record.runs else replace(record, runs=[began] * len(record.samples))


class KeptGroups:
    """Those of one process of a run, which `began` at this moment: a line each in the file `path`."""

    def __init__(self, path: Path, began: str) -> None:
        self._path, self._began = path, began
        self._kept = dict[str, list[Record]]()
        for line in _complete_lines(path):
            with contextlib.suppress(KeyError, TypeError, ValidationError):
                self._kept[line["group"]] = _RECORDS.validate_python(line["records"], strict=False)
        self._met, self._inside = Counter[str](), False

    def measured_once(self, what: object, records: Iterable[Record]) -> Iterator[Record]:
        """The records of the group `what`: those kept or, if there are none, `records`, which are then kept.

        A group within another one is a part of that.
        """
        if self._inside:
            yield from records
            return
        name = json.dumps(what, sort_keys=True)
        self._met[name] += 1
        key = f"{name}, {self._met[name]}"
        if key in self._kept:
            yield from self._kept[key]
            return
        found, self._inside = list[Record](), True
        try:
            for record in records:
                found.append(of_run(record, self._began))
                yield found[-1]
        finally:
            self._inside = False
        if not any(record.is_fault or record.reason is Reason.NO_TIME for record in found):
            self._keep(key, found)

    def _keep(self, key: str, records: list[Record]) -> None:
        data = {"group": key, "records": _RECORDS.dump_python(records, mode="json", warnings=False)}
        try:
            with self._path.open("a") as file:
                file.write(f"\n{json.dumps(data)}")  # what a kill cut short ends before it
        except OSError as error:
            progress.say(f"warning: {self._path}: what was measured is not kept until the end: {error.strerror}")


def _complete_lines(path: Path) -> Iterator[Any]:
    """The JSON of each line of a file, without what was cut short; of none if there is no file."""
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            yield json.loads(line)


_here: KeptGroups | None = None


def keep_in(kept: KeptGroups | None) -> None:
    """From now on, the groups of this process are kept there, or nowhere."""
    global _here
    _here = kept


def measured_once(what: object, records: Iterable[Record]) -> Iterator[Record]:
    """`KeptGroups.measured_once` where groups are kept: in the process that measures, not in its ranks."""
    return _here.measured_once(what, records) if _here else iter(records)
