"""The table of a section's records: what was measured, on each platform, and what was not and why."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalecard.analysis import formatting, ratio_text
from scalecard.records.axes import IN_BYTES, axis_label
from scalecard.records.record import Record, Result, Scalar
from scalecard.records.statistics import Interval
from scalecard.report import telemetry_text
from scalecard.report.table import EMPTY, Cell, Table

SHOW = {
    "s": formatting.seconds,
    "B": formatting.count_bytes,
    "fraction": "{:.3f}".format,
    "count": "{:.0f}".format,
    "B/s": formatting.byte_rate,
    "samples": "{:.0f} samples".format,
}
# What the last of a record's samples is, where they are no repetitions of one number.
LAST_SAMPLE = {"accuracy": "after the last epoch", "errors": "after the load; {:.0f} before it"}
METRIC = "metric"  # the column after the axes


@dataclass(frozen=True, kw_only=True)
class Row:
    """A measured record in words: its case on the axes, and by column what is known of it."""

    case: Mapping[str, Cell]
    median: Cell
    more: Mapping[str, str]
    remarked: bool


def rows(result: Result) -> dict[str, Row]:
    """One row per measured case and metric; the keys are the same for the same case on other platforms."""
    measured = [record for record in result.records if record.status == "ok"]
    return {json.dumps([record.metric, record.case], sort_keys=True): _row(record) for record in measured}


def _row(record: Record) -> Row:
    show, value = SHOW[record.unit], number(record)
    spans = [f"{show(each.low)} to {show(each.high)}" if each else "" for each in intervals(record)]
    last, remarks = LAST_SAMPLE.get(record.metric, ""), telemetry_text.remarks(record)
    return Row(
        case={axis_label(axis) or axis: _on_axis(axis, each) for axis, each in record.case.items()}
        | {METRIC: Cell(formatting.spaced(record.metric))},
        median=Cell(show(value), value, [*filter(None, [last.format(*record.samples[0])]), *remarks]),
        more={
            "95 % within a process": spans[0] or "none",
            "95 % between processes": spans[1],
            "energy per call, all GPUs": telemetry_text.energy(record),
            "n": str(record.num_samples),
            "stopped at": record.telemetry[0].stopped if record.telemetry else "",
        },
        remarked=bool(remarks),
    )


def _on_axis(axis: str, value: Scalar) -> Cell:
    return Cell(formatting.on_axis(axis, value), value if axis in IN_BYTES and isinstance(value, int) else None)


def number(record: Record) -> float:
    """The median of a measured record, in its unit; the last sample of a curve or a counter."""
    curve = record.metric in LAST_SAMPLE
    return statistics.median(samples[-1] for samples in record.samples) if curve else record.median


def intervals(record: Record) -> tuple[Interval | None, Interval | None]:
    """Intervals of that number, within a process and between processes; none where samples do not repeat one number."""
    return (None, None) if record.metric in LAST_SAMPLE else (record.within, record.between)


def table(label: str, platforms: Mapping[str, Mapping[str, Row]], one_process: Sequence[str]) -> Table:
    """One row per case and metric: the first platform in full, and the medians of the others; no column is empty.

    In `one_process` are the platforms on which nothing was measured in several.
    """
    first, *others = platforms
    keys = dict.fromkeys(key for own in platforms.values() for key in own)
    known = {key: next(own[key] for own in platforms.values() if key in own) for key in keys}
    shared = dict.fromkeys([*(name for row in known.values() for name in row.case if name != METRIC), METRIC], EMPTY)
    made: list[dict[str, str | Cell]] = [
        {
            **shared,
            **row.case,
            f"median, {first}" if others else "median": _median(platforms[first], key),
            **(platforms[first][key].more if key in platforms[first] else {}),
            **{f"median, {name}": _median(platforms[name], key) for name in others},
        }
        for key, row in known.items()
    ]
    return Table.of(label, made, _note(platforms[first].values(), one_process)).filled()


def _median(own: Mapping[str, Row], key: str) -> Cell:
    return own[key].median if key in own else Cell("\u2013")  # not measured


def _note(rows: Iterable[Row], one_process: Sequence[str]) -> str:
    said = ["An interval of the median needs at least six samples. Epochs are few, so every one is kept."]
    for platform in one_process:
        said.append(
            f"On {platform} every case was measured in one process: the spread between fresh processes was not"
            " measured."
        )
    if remarked := sum(row.remarked for row in rows):
        said.append(
            f"{remarked} of the numbers carry a remark. Where samples drift or resemble their neighbours, the interval"
            " within a process is too narrow."
        )
    return " ".join(said)


def absent(result: Result) -> list[dict[str, Any]]:
    """Skipped and failed cases with their reasons; cases with the same reason together."""
    rows: dict[tuple[str, str], list[str]] = {}
    for record in result.records:
        if record.status != "ok":
            rows.setdefault((record.status, record.why), []).append(ratio_text.case(record.case))
    return [
        {"platform": result.platform, "status": status, "note": note, "cases": cases}
        for (status, note), cases in rows.items()
    ]
