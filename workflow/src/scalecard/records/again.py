"""Failed cases are measured once more by the next run, but not for ever: a result says if its cases failed twice."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalecard.records.record import Record

TWICE = "cases failed in two measurements in a row, so the next run does not measure them again by itself"


def failed_again(records: Sequence[Record], output: Path) -> list[str]:
    """The warning that marks a result with failed cases, if the result that it replaces had some too."""
    return [TWICE] if any(r.status == "failed" for r in records) and num_failed(output) else []


def is_due(path: Path) -> bool:
    """Whether a result file has failed cases that were not tried twice. Not if it cannot be read."""
    return num_failed(path) > 0 and TWICE not in _content(path).get("warnings", [])


def num_failed(path: Path) -> int:
    """Failed cases in a result file; 0 if it is missing or cannot be read."""
    try:
        return sum(record["status"] == "failed" for record in _content(path)["records"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _content(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content
