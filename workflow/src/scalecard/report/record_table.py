"""The table of a section's records: what was measured, proven and counted, and what was not and why."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalecard.analysis import by_key, formatting
from scalecard.analysis.provenance import doubts
from scalecard.records.axes import IN_BYTES, Scalar, axis_label
from scalecard.records.record import Check, Count, Record, Result, Slowdown, Spread, Telemetry
from scalecard.records.statistics import Interval
from scalecard.report.table import EMPTY, Cell, Table

SHOW = {
    "s": formatting.seconds,
    "B": formatting.count_bytes,
    "fraction": "{:.3f}".format,
    "count": "{:.0f}".format,
    "B/s": formatting.byte_rate,
    "samples": "{:.0f} samples".format,
    "FLOP": formatting.count_flops,
}
# What the last of a record's samples is, where they are no repetitions of one number.
LAST_SAMPLE = {"accuracy": "after the last epoch", "errors": "after the load; {:.0f} before it"}
METRIC = "metric"  # the column after the axes
NOT_MEASURED = Cell("\u2013")
COUNTED = {
    "FLOPs": "arithmetic",
    "float32 FLOPs": "of it in float32",
    "recomputed FLOPs": "of it recomputed",
    "channels-last FLOPs": "of it channels last",
    "all-reduced bytes": "sent in all-reduces",
    "collective bytes": "in collectives",
    "sent bytes": "sent to another rank",
    "read bytes": "read",
    "written bytes": "written",
    "copied bytes": "copied",
    "received bytes": "received by all devices",
    "parameter bytes": "of parameters on all devices",
    "forwards": "forward passes",
    "updates": "updates of every parameter",
    "optimizer bytes": "kept by optimisers",
    "test FLOPs": "arithmetic of scoring the test images",
}
SHOW_COUNT = {"FLOP": formatting.count_flops, "B": formatting.count_bytes}
NOTABLE_STEAL = 0.05


def telemetry_remarks(record: Record) -> list[str]:
    """What a reader must know about this number; empty if all was well."""
    said = [remark for entry in record.telemetry for remark in _of_process(entry)]
    if record.launch_bound:
        said.append("bound by the launching thread, so no verdict on what it launched")
    if record.unit == "s":
        said += doubts(record.samples)
    return list(dict.fromkeys(said))


def _of_process(entry: Telemetry) -> Iterator[str]:
    if entry.measured_again:
        yield f"measured once more, after {entry.measured_again}"
    if entry.state is None:
        return
    for index, gpu in enumerate(entry.state.gpus):
        for reason, share in gpu.reasons.items():
            marked = "still " if reason in {*Slowdown} and entry.measured_again else ""
            yield f"GPU {index}: {marked}{reason} in {formatting.percent(share)} of the readings"
        if gpu.others_memory_bytes:
            yield f"GPU {index}: other processes used {formatting.count_bytes(gpu.others_memory_bytes)} of its memory"
    if (entry.state.steal or 0) > NOTABLE_STEAL:
        yield f"the hypervisor took {formatting.percent(entry.state.steal or 0)} of the CPU's time"


def energy_text(record: Record) -> str:
    """Joules per call by the GPUs' own counters, or ''."""
    joules = [entry.joules for entry in record.telemetry if entry.joules]
    return f"{statistics.median(joules):.3g} J" if joules else ""


def telemetry_overview(result: Result) -> list[tuple[str, str]]:
    """(fact, range) pairs over everything that was timed in this experiment."""
    states = [entry.state for record in result.records for entry in record.telemetry if entry.state]
    if not states:
        return []
    rows = []
    for index in range(max(len(state.gpus) for state in states)):
        gpus = [state.gpus[index] for state in states if index < len(state.gpus)]
        ranges = {
            "SM clock": _range([gpu.sm_clock_mhz for gpu in gpus], "MHz"),
            "temperature": _range([gpu.temperature_c for gpu in gpus], "°C"),
            "power": _range([gpu.power_w for gpu in gpus], "W"),
        }
        rows += [(f"GPU {index} {label}", text or "not reported by this GPU") for label, text in ranges.items()]
    rows.append(("highest load average", f"{max(state.load_average for state in states):.1f}"))
    for label, values in (
        ("CPU busy", [state.cpu_busy for state in states]),
        ("CPU time taken by the hypervisor", [state.steal for state in states]),
    ):
        if known := [value for value in values if value is not None]:
            rows.append((label, f"{formatting.percent(min(known))} to {formatting.percent(max(known))}"))
    why_not = next((f"not known ({s.missing['cpu_mhz']})" for s in states if "cpu_mhz" in s.missing), "not known")
    rows.append(("CPU frequency", _range([state.cpu_mhz for state in states], "MHz") or why_not))
    cost = max(state.sampler_cost for state in states)
    return [*rows, ("cost of these readings", f"at most {formatting.percent(cost, 2)} of a core")]


def _range(spreads: Sequence[Spread | None], unit: str) -> str:
    known = [spread for spread in spreads if spread]
    return f"{min(s.low for s in known):.0f} to {max(s.high for s in known):.0f} {unit}" if known else ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A measured record in words: its case on the axes, and by column what is known of it."""

    case: Mapping[str, Cell]
    median: Cell
    more: Mapping[str, str]
    remarked: bool


def rows(result: Result) -> dict[str, Row]:
    """One row per measured case and metric; the keys are the same for the same case on other platforms.

    What memory is needed for, five kinds of each case, is in the figure and in the exports.
    """
    measured = [record for record in result.records if record.status == "ok" and "kind" not in record.case]
    return {json.dumps([record.metric, record.case], sort_keys=True): _row(record) for record in measured}


def _row(record: Record) -> Row:
    show, value = SHOW[record.unit], number(record)
    spans = [f"{show(each.low)} to {show(each.high)}" if each else "" for each in intervals(record)]
    last, remarks = LAST_SAMPLE.get(record.metric, ""), telemetry_remarks(record)
    return Row(
        case={axis_label(axis) or axis: _on_axis(axis, each) for axis, each in record.case.items()}
        | {METRIC: Cell(formatting.spaced(record.metric))},
        median=Cell(show(value), value, [*filter(None, [last.format(*record.samples[0])]), *remarks]),
        more={
            "95 % within a process": spans[0] or "none",
            "95 % between processes": spans[1],
            "energy per call, all GPUs": energy_text(record),
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


def table(label: str, platforms: Mapping[str, Mapping[str, Row]], *, in_one_process: bool) -> Table:
    """One row per case and metric: the first platform in full, and the medians of the others; no column is empty.

    `in_one_process`: whether no case of the first was measured in several.
    """
    first, *others = platforms
    by_case: dict[str, dict[str, Row]] = {}
    for platform, own in platforms.items():
        for key, row in own.items():
            by_case.setdefault(key, {})[platform] = row
    known = [(next(iter(own.values())), own) for own in by_case.values()]
    shared = dict.fromkeys([*(name for row, _ in known for name in row.case if name != METRIC), METRIC], EMPTY)
    made: list[dict[str, str | Cell]] = [
        {
            **shared,
            **row.case,
            f"median, {first}" if others else "median": own[first].median if first in own else NOT_MEASURED,
            **(own[first].more if first in own else {}),
            **{f"median, {name}": own[name].median if name in own else NOT_MEASURED for name in others},
        }
        for row, own in known
    ]
    note = "An interval of the median needs at least six samples. Epochs are few, so every one is kept."
    if in_one_process:
        note += (
            f" On {first} every case was measured in one process: the spread between fresh processes was not measured."
        )
    if remarked := sum(row.remarked for row in platforms[first].values()):
        note += (
            f" {remarked} of the numbers carry a remark. Where samples drift or resemble their neighbours, the interval"
            " within a process is too narrow."
        )
    return Table.of(label, made, note).filled()


def absent(result: Result) -> list[dict[str, Any]]:
    """Skipped and failed cases with their reasons; cases with the same reason together."""
    rows = by_key(((r.status, r.why), formatting.case(r.case)) for r in result.records if r.status != "ok")
    return [
        {"platform": result.platform, "status": status, "note": note, "cases": cases}
        for (status, note), cases in rows.items()
    ]


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Cases in words of which the same was proven, with the same differences, and the same was counted."""

    cases: list[str]
    proven: list[str]
    counted: list[str]


def proofs(result: Result) -> list[Proof]:
    """Of all cases that were timed; what was skipped or failed has none."""
    found = by_key(
        ((tuple(map(_proven, record.checks)), tuple(map(_counted, record.work))), formatting.case(record.case))
        for record in result.records
        if record.checks or record.work
    )
    return [Proof(cases=cases, proven=[*proven], counted=[*counts]) for (proven, counts), cases in found.items()]


def _proven(check: Check) -> str:
    found = "exactly equal" if check.difference == 0 else f"differs by {check.difference:.2g}"
    return f"{check.name}: {check.dtype}, {found} (allowed {check.tolerance:.2g})"


def _counted(count: Count) -> str:
    return f"{COUNTED.get(count.name, count.name)}: {SHOW_COUNT.get(count.unit, '{:,.10g}'.format)(count.counted)}"
