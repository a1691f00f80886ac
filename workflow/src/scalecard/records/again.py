"""What the next run measures again by itself: failed cases once, and those that a smaller budget had left out.

A result says if its cases failed twice, and how long it was allowed to take.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scalecard import progress
from scalecard.records.record import Record

TWICE = "cases failed in two measurements in a row, so the next run does not measure them again by itself"


def failed_again(records: Sequence[Record], output: Path) -> list[str]:
    """The warning that marks a result with failed cases, if the result that it replaces had some too."""
    return [TWICE] if any(r.status == "failed" for r in records) and num_failed(output) else []


LEFT_OUT = "left out: "  # how the note of a case begins that the budget had no time for


def is_due(path: Path, seconds: int) -> str:
    """Why a result file is measured again if that may take so many seconds (0: any), or ''.

    Not if it cannot be read.
    """
    failed, left_out = num_failed(path), _num(path, lambda record: str(record["note"]).startswith(LEFT_OUT))
    if failed and TWICE not in _content(path).get("warnings", []):
        return f"{progress.counted(failed, 'case')} failed last time: measuring it once more"
    had = int(_content(path).get("budget_seconds", 0)) if left_out else 0
    if left_out and had and (seconds > had or not seconds):
        return f"{progress.counted(left_out, 'case')} had no time in {had} s, and now there is more: measuring it again"
    return ""


def num_failed(path: Path) -> int:
    """Failed cases in a result file; 0 if it is missing or cannot be read."""
    return _num(path, lambda record: record["status"] == "failed")


def _num(path: Path, counts: Callable[[dict[str, Any]], bool]) -> int:
    try:
        return sum(map(counts, _content(path)["records"]))
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _content(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content
