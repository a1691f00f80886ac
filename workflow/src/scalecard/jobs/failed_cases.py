"""Cases that failed, not for want of devices but because a rank was lost or memory ran out: the next run measures them
once more, and the end of a run lists them. So it is with cases for which a smaller budget had no time.

Every measurement has a small file among its inputs, which is empty at first. Where cases are due it names that result,
so that Snakemake sees a changed input, once.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from scalecard import progress
from scalecard.records.atomic import write_atomically
from scalecard.records.files import is_due
from scalecard.records.record import Record, Result

MARKS = Path(".snakemake/scalecard-again")


def mark_of(result: Path) -> Path:
    """The file among a measurement's inputs."""
    return MARKS / result.parent.name / result.stem


def to_repeat(results: Iterable[Path], seconds: Mapping[str, int]) -> dict[str, str]:
    """The experiments among these results that are measured again, and why; writes the marks.

    `seconds` is how long each may take; without an entry, as long as it needs.
    """
    due = {}
    for path in results:
        mark = mark_of(path)
        if why := is_due(path, seconds.get(path.stem, 0)):
            due[path.stem] = why
            which = str(json.loads(path.read_text()).get("started"))
            if not mark.exists() or mark.read_text() != which:
                write_atomically(mark, which)
        elif not mark.exists():
            write_atomically(mark, "")
            os.utime(mark, (0, 0))  # older than any result: where Snakemake's records are gone, nothing is out of date
    return due


def announce(due: Mapping[str, str]) -> None:
    """Say why experiments that are up to date are measured again."""
    for name, why in due.items():
        print(f"{name}: {why}", flush=True)


def closing(results: Sequence[Result]) -> str:
    """The last line of a run, which lists what was lost; empty if nothing was."""
    lost = [
        f"{result.experiment} {_case(record)} ({record.why})"
        for result in results
        for record in result.records
        if record.status == "failed"
    ]
    if not lost:
        return ""
    due = [r.experiment for r in results if r.count("failed") and not r.failed_again]
    after = f" The next run measures {', '.join(due)} once more." if due else ""
    return f"Failed: {progress.counted(len(lost), 'case')}: {'; '.join(lost)}.{after}"


def _case(record: Record) -> str:
    axes = [f"{axis} {value}" for axis, value in record.case.items()]
    return ", ".join([*axes, record.metric]) if axes else "as a whole"
