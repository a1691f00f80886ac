"""What the next run measures again by itself: failed cases once, and those that a smaller budget had left out.

A result says if its cases failed twice, and how long it was allowed to take.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalecard import progress
from scalecard.records.record import Reason, Record

TWICE = "cases failed in two measurements in a row, so the next run does not measure them again by itself"


def failed_again(records: Sequence[Record], output: Path) -> bool:
    """Whether both these records and the result that they replace have failed cases."""
    return any(r.status == "failed" for r in records) and num_failed(output) > 0


def is_due(path: Path, seconds: int) -> str:
    """Why a result file is measured again if that may take so many seconds (0: any), or ''.

    Not if it cannot be read.
    """
    content = _content(path)
    failed, had = _num_failed(content), content.get("budget_seconds", 0)
    late = sum(record["reason"] == Reason.NO_TIME for record in content["records"])
    if failed and not content.get("failed_again"):
        return f"{progress.counted(failed, 'case')} failed last time: measuring it once more"
    if late and had and (seconds > had or not seconds):
        return f"{progress.counted(late, 'case')} had no time in {had} s, and now there is more: measuring it again"
    return ""


def num_failed(path: Path) -> int:
    """Failed cases in a result file; 0 if it is missing or cannot be read."""
    return _num_failed(_content(path))


def _num_failed(content: dict[str, Any]) -> int:
    return sum(record["status"] == "failed" for record in content["records"])


def _content(path: Path) -> dict[str, Any]:
    """A result file's data, of which `load` may refuse the rest; no records if it is missing or no result."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        known = [{"status": record["status"], "reason": record["reason"]} for record in found["records"]]
        return {**found, "records": known}
    except (OSError, ValueError, KeyError, TypeError):
        return {"records": []}
