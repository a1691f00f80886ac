"""Where earlier nights are, and which platforms are the same hardware. Light: the workflow asks at every start.

    results/<platform>/history/<night>/<experiment>.json.gz   what was kept of a night
    results/<platform>/history/trend.json                     its numbers, of all nights: kept_nights.py

A night is named by the moment when its last result was finished, as in 20260101T031500Z, so names sort by time.
"""

import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from scalecard.hardware.machine import from_facts
from scalecard.records.strict_json import load_object

HISTORY, INDEX = "history", "trend.json"
NIGHT = re.compile(r"\d{8}T\d{6}Z(-\d+)?")


def night_name(finished: str) -> str:
    """The name of the night that ended at this ISO 8601 moment."""
    return datetime.fromisoformat(finished).astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")


def is_night(folder: Path) -> bool:
    """Whether a folder has the name of one."""
    return bool(NIGHT.fullmatch(os.path.basename(folder)))


def nights(platform: Path) -> list[Path]:
    """The folders of a platform's nights, the oldest first; what has another name is none of ours."""
    folder = platform / HISTORY
    return sorted(path for path in folder.iterdir() if is_night(path) and path.is_dir()) if folder.is_dir() else []


def indices(platform: Path) -> list[Path]:
    """The existing indices of this platform and of the same hardware with another driver or lock, this one's first."""
    beside = sorted(path.parent.parent for path in platform.parent.glob(f"*/{HISTORY}/{INDEX}"))
    same = [other for other in beside if other != platform and _same_hardware(platform, other)]
    return [path for each in (platform, *same) if (path := each / HISTORY / INDEX).is_file()]


def _same_hardware(platform: Path, other: Path) -> bool:
    """Whether the machines differ, and in nothing but driver and locked software.

    Two labels of one machine were told apart on purpose, and stay apart.
    """
    try:
        ours, theirs = (from_facts(load_object(folder / "machine.json")) for folder in (platform, other))
    except (ValueError, TypeError):  # one is missing or damaged: nothing is known of its hardware
        return False
    # Another driver or lock makes a new platform of the same hardware.
    old, new = (replace(machine, driver="", software="", num_devices=0) for machine in (ours, theirs))
    return ours.fingerprint != theirs.fingerprint and old == new
