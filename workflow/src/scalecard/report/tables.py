"""The tables of a section: what was measured, and what was not and why."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalecard.records.record import Case, Record, Result
from scalecard.report import hardware_state, units, words

SHOW = {
    "s": units.seconds,
    "B": units.count_bytes,
    "fraction": "{:.3f}".format,
    "count": "{:.0f}".format,
    "B/s": units.byte_rate,
    "samples": "{:.0f} samples".format,
}
# What the last of a record's samples is, where they are no repetitions of one number.
WHAT = {"accuracy": "after the last epoch", "errors": "after the load; {:.0f} before it"}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One record in words; `sort` is its median, in the record's unit."""

    metric: str
    case: Case
    value: str
    sort: float
    within: str
    between: str
    count: int
    what: str
    stopped: str
    energy: str
    remarks: list[str]


def cells(result: Result) -> dict[str, Cell]:
    """One cell per measured case and metric; the keys are the same for the same case on other platforms."""
    measured = [record for record in result.records if record.status == "ok"]
    return {json.dumps([record.metric, record.case], sort_keys=True): _cell(record) for record in measured}


def _cell(record: Record) -> Cell:
    show = SHOW[record.unit]
    curve = record.metric in WHAT  # not repeated samples of one number
    value = statistics.median(samples[-1] for samples in record.samples) if curve else record.median
    within, between = (None, None) if curve else (record.within, record.between)
    return Cell(
        metric=record.metric,
        case=record.case,
        value=show(value),
        sort=value,
        within=f"{show(within.low)} to {show(within.high)}" if within else "",
        between=f"{show(between.low)} to {show(between.high)}" if between else "",
        count=record.num_samples,
        what=WHAT.get(record.metric, "").format(*record.samples[0]),
        stopped=record.telemetry[0].stopped if record.telemetry else "",
        energy=hardware_state.energy(record),
        remarks=hardware_state.remarks(record),
    )


def joined(platforms: Mapping[str, Mapping[str, Cell]]) -> dict[str, Any]:
    """The cells of each platform side by side: one row per case and metric."""
    rows: dict[str, dict[str, Any]] = {}
    for platform, own in platforms.items():
        for key, cell in own.items():
            row = rows.setdefault(key, {"metric": cell.metric, "case": cell.case, "cells": {}})
            row["cells"][platform] = cell
    everything = [cell for own in platforms.values() for cell in own.values()]
    axes = list(dict.fromkeys(axis for cell in everything for axis in cell.case))
    between, energy = any(cell.between for cell in everything), any(cell.energy for cell in everything)
    return {
        "axes": axes,
        "head": [*(axis.replace("_", " ") for axis in axes), "metric", *_columns(list(platforms), between, energy)],
        "rows": list(rows.values()),
        "platforms": list(platforms),
        "between": between,
        "energy": energy,
        "remarked": sum(bool(cell.remarks) for cell in everything),
    }


def _columns(platforms: Sequence[str], between: bool, energy: bool) -> Iterator[str]:
    """The headings of each platform's columns."""
    for platform in platforms:
        yield f"median, {platform}" if len(platforms) > 1 else "median"
        yield "95 % within a process"
        if between:
            yield "95 % between processes"
        if energy:
            yield "energy per call, all GPUs"
        yield "n"
        yield "stopped at"


def absent(result: Result) -> list[dict[str, Any]]:
    """What was skipped or failed, and why; cases with the same reason together."""
    rows: dict[tuple[str, str], list[str]] = {}
    for record in result.records:
        if record.status != "ok":
            rows.setdefault((record.status, record.note), []).append(words.case(record.case))
    return [
        {"platform": result.platform, "status": status, "note": note, "cases": cases}
        for (status, note), cases in rows.items()
    ]
