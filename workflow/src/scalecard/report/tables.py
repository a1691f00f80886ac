"""The tables of a section: what was measured, and what was not and why."""

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from scalecard.analysis import formatting, ratio_text
from scalecard.records import axes
from scalecard.records.record import Case, Record, Result
from scalecard.records.statistics import Interval
from scalecard.report import telemetry_text

SHOW = {
    "s": formatting.seconds,
    "B": formatting.count_bytes,
    "fraction": "{:.3f}".format,
    "count": "{:.0f}".format,
    "B/s": formatting.byte_rate,
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
    show, value = SHOW[record.unit], number(record)
    within, between = intervals(record)
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
        energy=telemetry_text.energy(record),
        remarks=telemetry_text.remarks(record),
    )


def number(record: Record) -> float:
    """What stands for a measured record, in its unit: the median, or of a curve or a counter the last sample."""
    curve = record.metric in WHAT
    return statistics.median(samples[-1] for samples in record.samples) if curve else record.median


def intervals(record: Record) -> tuple[Interval | None, Interval | None]:
    """Of that number, within a process and between processes; none where samples do not repeat one number."""
    return (None, None) if record.metric in WHAT else (record.within, record.between)


@dataclass(frozen=True)
class Shown:
    """What stands in a cell of the page: text, the number to sort by, and what is said below it."""

    text: str
    sort: float | None = None
    below: Sequence[str] = ()


def joined(platforms: Mapping[str, Mapping[str, Cell]]) -> dict[str, Any]:
    """One row per case and metric: the first platform in full, and the medians of the others; no column is empty."""
    keys = dict.fromkeys(key for own in platforms.values() for key in own)
    rows = [[own.get(key) for own in platforms.values()] for key in keys]
    columns = [*_axes(rows), *_of_first(list(platforms)), *_of_others(list(platforms))]
    cells = [[column(row) for _, column in columns] for row in rows]
    filled = [place for place in range(len(columns)) if any(row[place].text for row in cells)]
    first = next(iter(platforms.values()), {})
    return {
        "head": [columns[place][0] for place in filled],
        "rows": [[row[place] for place in filled] for row in cells],
        "remarked": sum(bool(cell.remarks) for cell in first.values()),
    }


Row = Sequence[Cell | None]  # of one case, a cell per platform that measured it
Column = tuple[str, Callable[[Row], Shown]]


def _axes(rows: Sequence[Row]) -> Iterator[Column]:
    """The values of the case."""
    for axis in dict.fromkeys(axis for row in rows for cell in row if cell for axis in cell.case):
        yield axes.label(axis) or axis, partial(_on_axis, axis)
    yield "metric", lambda row: Shown(_known(row).metric.replace("_", " "))


def _on_axis(axis: str, row: Row) -> Shown:
    case = _known(row).case
    if axis not in case:
        return Shown("")
    value = case[axis]
    return Shown(formatting.on_axis(axis, value), value if axis in axes.IN_BYTES and isinstance(value, int) else None)


def _known(row: Row) -> Cell:
    return next(cell for cell in row if cell)


def _of_first(platforms: Sequence[str]) -> Iterator[Column]:
    """Everything that is known of each case on this platform."""
    yield f"median, {platforms[0]}" if len(platforms) > 1 else "median", partial(_median, 0)
    yield "95 % within a process", partial(_said, lambda cell: cell.within or "none")
    yield "95 % between processes", partial(_said, lambda cell: cell.between)
    yield "energy per call, all GPUs", partial(_said, lambda cell: cell.energy)
    yield "n", partial(_said, lambda cell: str(cell.count))
    yield "stopped at", partial(_said, lambda cell: cell.stopped)


def _said(of: Callable[[Cell], str], row: Row) -> Shown:
    """What is known of the case on the first platform."""
    return Shown(of(row[0]) if row[0] else "")


def _of_others(platforms: Sequence[str]) -> Iterator[Column]:
    for place, platform in enumerate(platforms[1:], 1):
        yield f"median, {platform}", partial(_median, place)


def _median(place: int, row: Row) -> Shown:
    cell = row[place]
    if cell is None:
        return Shown("\u2013")  # not measured
    return Shown(cell.value, cell.sort, [*filter(None, [cell.what]), *cell.remarks])


def absent(result: Result) -> list[dict[str, Any]]:
    """What was skipped or failed, and why; cases with the same reason together."""
    rows: dict[tuple[str, str], list[str]] = {}
    for record in result.records:
        if record.status != "ok":
            rows.setdefault((record.status, record.why), []).append(ratio_text.case(record.case))
    return [
        {"platform": result.platform, "status": status, "note": note, "cases": cases}
        for (status, note), cases in rows.items()
    ]
