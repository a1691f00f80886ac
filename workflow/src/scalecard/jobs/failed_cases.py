"""Cases that failed, not for want of devices but because a rank was lost or memory ran out: who runs them again, and
who is told.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from scalecard.records.again import TWICE, is_due, num_failed
from scalecard.records.record import Record, Result


def to_repeat(paths: Iterable[Path]) -> list[str]:
    """The experiments among these results that the next run measures again."""
    return [path.stem for path in paths if is_due(path)]


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
