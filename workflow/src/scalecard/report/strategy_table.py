"""Every strategy of every workload in one table: time, rate, gain, share of the peak, memory, energy, launching.

rate          samples or tokens of a step over its time
gain          of strong scaling, how many times as fast as one device; of weak scaling, the rate over one device's
MFU           model FLOPs utilisation: the operations of one device's step per sample or token, times the rate, over
              the devices' dense peak in float32. Source: Chowdhery et al., PaLM (2022), appendix B
launching     the share of a step in which work is still being submitted
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scalecard.analysis import formatting, limits
from scalecard.analysis.step_records import operations_each, place, single
from scalecard.records.record import Record, Result

HEAD = [
    *("Workload", "Strategy", "Devices", "Scaling", "Step", "Gain", "Rate", "MFU"),
    *("Memory", "Largest batch", "Energy", "Launching"),
]
NOTES = {
    "Gain": "the rate over one device's",
    "MFU": "the operations that the model needs, over the devices' dense peak in float32",
    "Memory": "of the device that needs the most",
    "Largest batch": "samples on each device, right to a sixteenth",
    "Launching": "the share of a step in which work is still submitted",
}


@dataclass(frozen=True)
class Table:
    """Cells as text, and for each the number to sort by.

    A `trial` shows a method on numbers that say nothing about real devices: the page greys it.
    """

    label: str
    head: Sequence[str]
    rows: Sequence[Sequence[tuple[str, float]]]
    note: str
    trial: bool = False


def table(result: Result) -> Table:
    """One row for each strategy that was timed, the fastest of a workload and number of devices first."""
    timed = [record for record in result.select("step_time") if record.samples]
    order = sorted(timed, key=lambda r: (str(r.case["workload"]), _number(r, "devices"), r.case["scaling"], r.median))
    rows = [_row(result, record) for record in order]
    shown = [place for place in range(len(HEAD)) if any(row[place][0] for row in rows)]  # a CPU has no peak, say
    head = [HEAD[place] for place in shown]
    note = " ".join(f"{name}: {NOTES[name]}." for name in head if name in NOTES)
    return Table("Strategies", head, [[row[place] for place in shown] for row in rows], note)


def _row(result: Result, record: Record) -> list[tuple[str, float]]:
    case = record.case
    workload, devices = str(case["workload"]), _number(record, "devices")
    nodes, rate = int(case.get("nodes") or 1), _number(record, "units") / record.median
    return [
        (workload, 0.0),
        (str(case["strategy"]), 0.0),
        (f"{devices:.0f}{f' on {nodes} nodes' if nodes > 1 else ''}", devices + nodes / 1e3),
        (str(case["scaling"]) if devices > 1 else "", 0.0),
        (formatting.seconds(record.median), record.median),
        _gain(result, record, rate),
        (f"{formatting.count(rate)} {case['unit']}/s", rate),
        *(_utilisation(result, record, rate), memory(result, record), _largest_batch(result, record)),
        *(energy(record), launching(result, record)),
    ]


def _gain(result: Result, record: Record, rate: float) -> tuple[str, float]:
    alone = single(result, str(record.case["workload"]))
    if alone is None or not alone.samples or alone is record:
        return ("", 0.0)
    gain = rate * alone.median / _number(alone, "units")
    return (f"{gain:.2f}x", gain)


def _utilisation(result: Result, record: Record, rate: float) -> tuple[str, float]:
    alone = single(result, str(record.case["workload"]))
    return share_of_peak(result, record, rate, operations_each(alone), "float32")


def share_of_peak(result: Result, record: Record, rate: float, each: float, dtype: str) -> tuple[str, float]:
    """What counts are the operations that the model needs, `each` per sample or token, however often they are done."""
    peak = limits.of_products(result, dtype)
    if not (each and peak):
        return ("", 0.0)
    share = each * rate / (_number(record, "devices") * peak.rate * 1e12)
    return (formatting.percent(share, 1), share)


def memory(result: Result, record: Record) -> tuple[str, float]:
    """Of the fullest device; an empty cell without GPUs."""
    found = result.find("peak_memory", **place(record))
    return (formatting.count_bytes(found.median), found.median) if found and found.samples else ("", 0.0)


def _largest_batch(result: Result, record: Record) -> tuple[str, float]:
    """Samples on each device; the same however many are timed."""
    place = {key: record.case.get(key) for key in ("workload", "strategy", "devices", "nodes")}
    found = result.find("largest_batch", **place)
    return (f"{found.median:.0f}{' or more' if found.note else ''}", found.median) if found else ("", 0.0)


def energy(record: Record) -> tuple[str, float]:
    """Per sample or token."""
    joules = [entry.joules for entry in record.telemetry if entry.joules is not None]
    if not joules:
        return ("", 0.0)
    each = statistics.median(joules) / _number(record, "units")
    return (f"{each:.3g} J/{str(record.case['unit'])[:-1]}", each)


def launching(result: Result, record: Record) -> tuple[str, float]:
    """Only of GPUs: a CPU rank does the work in the call that submits it."""
    enqueued = [entry.enqueue for entry in record.telemetry if entry.enqueue]
    if not enqueued or result.emulated:
        return ("", 0.0)
    share = min(1.0, statistics.median(enqueued) / record.median)
    return (formatting.percent(share), share)


def _number(record: Record, axis: str) -> float:
    return float(record.case[axis] or 0)
