"""Kept nights in a workflow: the trend is drawn if there are any, and a hundred do not slow its start."""

import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from scalecard.hardware.machine import probe
from scalecard.records.record import Result
from scalecard.report import kept_nights
from support.nights import Nights
from support.projects import SMOKE, completed, copy_project

pytestmark = pytest.mark.workflow

LARGEST = 1.5  # times as long with a hundred nights as with none; measured: 1.0


def spent(folder: Path) -> tuple[float, str]:
    """Seconds of CPU time to plan a run, which other programs do not change much, and the plan."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    text = completed(folder, "-n", *SMOKE)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, text


def test_a_hundred_nights_do_not_slow_the_start(tmp_path: Path, make_result: Callable[..., Result]) -> None:
    folder = copy_project(tmp_path / "project")
    spent(folder)  # the first one checks the configuration
    without, plan = min(spent(folder) for _ in range(2))
    assert "trend" not in plan
    assert "kept nights" not in plan
    nights, here = Nights(folder, make_result), probe().slug
    kept = nights.keep(1.0, here).folder
    assert kept
    for number in range(100):
        copy = kept.with_name(f"2025{1 + number // 28:02}{1 + number % 28:02}T021000Z")
        copy.mkdir(exist_ok=True)
        (copy / "async_timing.json.gz").write_bytes((kept / "async_timing.json.gz").read_bytes())
    entries, left_out = kept_nights.refreshed(nights.folder(here))
    assert (len({entry.night for entry in entries}), left_out) == (101, [])
    kept_nights.save(entries, nights.folder(here))
    with_nights, plan = min(spent(folder) for _ in range(2))
    assert "draw the figure of the kept nights" in plan
    assert with_nights < LARGEST * without
