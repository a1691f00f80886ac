"""Cases that failed, not for want of devices but because a rank was lost or memory ran out: the next run measures them
once more, and the end of a run lists them.

Every measurement has a small file among its inputs, which is empty at first. Where cases failed it names that result,
so that Snakemake sees a changed input, once.
"""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from scalecard.records.again import TWICE, is_due, num_failed
from scalecard.records.atomic import write_atomically
from scalecard.records.record import Record, Result

MARKS = Path(".snakemake/scalecard-again")


def mark_of(result: Path) -> Path:
    """The file among a measurement's inputs."""
    return MARKS / result.parent.name / result.stem


def to_repeat(results: Iterable[Path]) -> list[str]:
    """The experiments among these results that are measured once more; writes the marks."""
    due = []
    for path in results:
        mark = mark_of(path)
        if is_due(path):
            due.append(path.stem)
            which = str(json.loads(path.read_text()).get("started"))
            if not mark.exists() or mark.read_text() != which:
                write_atomically(mark, which)
        elif not mark.exists():
            write_atomically(mark, "")
            os.utime(mark, (0, 0))  # older than any result: where Snakemake's records are gone, nothing is out of date
    return due


def announce(names: Sequence[str], folder: Path) -> None:
    """Say why experiments that are up to date are measured again."""
    for name in names:
        number = num_failed(folder / f"{name}.json")
        print(f"{name}: {number} case{'s' * (number != 1)} failed last time: measuring it once more", flush=True)


def closing(results: Sequence[Result]) -> str:
    """The last line of a run, which lists what was lost; empty if nothing was."""
    lost = [
        f"{result.experiment} {_case(record)} ({record.note})"
        for result in results
        for record in result.records
        if record.status == "failed"
    ]
    if not lost:
        return ""
    due = [r.experiment for r in results if r.count("failed") and TWICE not in r.warnings]
    after = f" The next run measures {', '.join(due)} once more." if due else ""
    return f"Warning: {len(lost)} case{'s' * (len(lost) > 1)} failed: {'; '.join(lost)}.{after}"


def _case(record: Record) -> str:
    return ", ".join([f"{axis} {value}" for axis, value in record.case.items()] + [record.metric])
