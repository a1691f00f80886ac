"""Groups of records that outlive a run that was ended, so that the next one measures only what is missing.

A group is what `measured_once` is given: cases that are timed in the same rounds, or all that one launch of ranks
measures. It is kept, whole, as soon as it was measured, in a file for each process of the run. If anything changes that
it was measured with, nothing is kept. A group in which something failed or had no time is measured again.
"""

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from scalecard import progress
from scalecard.records.atomic import write_atomically
from scalecard.records.record import Reason, Record

FOLDER = "unfinished"  # in a platform's folder, with one for each experiment
CONDITIONS = "conditions.json"
DISTURBANCES = "disturbances.jsonl"  # a line for each run that began in the folder
_RECORDS = TypeAdapter(list[Record])


def prepare(folder: Path, conditions: Mapping[str, Any]) -> bool:
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


def discard(folder: Path) -> None:
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
        self._kept = dict(_groups(path))
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


def _groups(path: Path) -> Iterator[tuple[str, list[Record]]]:
    """The groups in a file."""
    for line in _complete_lines(path):
        with contextlib.suppress(KeyError, TypeError, ValidationError):
            yield line["group"], _RECORDS.validate_python(line["records"], strict=False)


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
