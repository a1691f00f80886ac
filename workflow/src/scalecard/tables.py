"""The tables of a section of the report: what was measured, what was not and why, and what was proven."""

import json
import statistics
from collections.abc import Sequence
from typing import Any

from scalecard import state, units
from scalecard.schema import Record, Result


def measured(results: Sequence[Result]) -> dict[str, Any]:
    """One row a case and metric, medians with intervals by platform."""
    rows: dict[str, dict[str, Any]] = {}
    axes: dict[str, None] = {}
    for result in results:
        for record in result.records:
            if record.status != "ok":
                continue
            axes |= dict.fromkeys(record.case)
            key = json.dumps([record.metric, record.case], sort_keys=True)
            row = rows.setdefault(key, {"metric": record.metric, "case": record.case, "cells": {}})
            row["cells"][result.platform] = _cell(record)
    cells = [cell for row in rows.values() for cell in row["cells"].values()]
    return {
        "axes": list(axes),
        "rows": list(rows.values()),
        "platforms": [r.platform for r in results],
        "between": any(cell["between"] for cell in cells),
        "energy": any(cell["energy"] for cell in cells),
        "remarked": sum(bool(cell["remarks"]) for cell in cells),
    }


def _cell(record: Record) -> dict[str, Any]:
    show = {"s": units.seconds, "B": units.count_bytes, "fraction": "{:.3f}".format}[record.unit]
    curve = record.metric == "accuracy"  # over epochs, not repeated samples of one number
    value = statistics.median(samples[-1] for samples in record.processes) if curve else record.median
    within, between = (None, None) if curve else (record.within, record.between)
    return {
        "value": show(value),
        "sort": value,
        "within": f"{show(within.low)} to {show(within.high)}" if within else "",
        "between": f"{show(between.low)} to {show(between.high)}" if between else "",
        "count": len(record.samples),
        "what": "after the last epoch" if curve else "",
        "stopped": next((entry.get("stopped", "") for entry in record.telemetry), ""),
        "energy": state.energy(record),
        "remarks": state.remarks(record),
    }


def absent(results: Sequence[Result]) -> list[dict[str, Any]]:
    """What was skipped or failed, and why; cases with the same reason together."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for result in results:
        for record in result.records:
            if record.status != "ok":
                case = ", ".join(f"{axis.replace('_', ' ')} {value}" for axis, value in record.case.items())
                rows.setdefault((result.platform, record.status, record.note), []).append(case)
    return [
        {"platform": platform, "status": status, "note": note, "cases": cases}
        for (platform, status, note), cases in rows.items()
    ]


def checks(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Every kind of proof with its largest difference."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for result in results:
        for check in (check for record in result.records for check in record.checks):
            row = rows.setdefault((result.platform, check.name), {"difference": 0.0, "count": 0})
            row["difference"] = max(row["difference"], check.difference)
            row |= {"tolerance": check.tolerance, "count": row["count"] + 1}
    return [{"platform": platform, "name": name, **row} for (platform, name), row in rows.items()]
