"""Every strategy of every workload in one table: time, rate, gain, share of the peak, memory, energy, launching.

rate          samples or tokens of a step over its time
gain          of strong scaling, how many times as fast as one device; of weak scaling, the rate over one device's
MFU           model FLOPs utilisation: the operations of one device's step per sample or token, times the rate, over
              the devices' dense peak in float32. Source: Chowdhery et al., PaLM (2022), appendix B
launching     the share of a step in which work is still being submitted
"""

import statistics

from scalecard.analysis import formatting, limits
from scalecard.analysis.experiment_results import operations_each, place, single
from scalecard.records.record import Record, Result
from scalecard.report.table import EMPTY, Cell, Table

MEANINGS = {
    "Gain": "the rate over one device's",
    "MFU": "the operations that the model needs, over the devices' dense peak in float32",
    "Memory": "of the device that needs the most",
    "Largest batch": "samples on each device, right to a sixteenth",
    "Launching": "the share of a step in which work is still submitted",
}


def table(result: Result) -> Table:
    """One row for each strategy that was timed, the fastest of a workload and number of devices first."""
    timed = [record for record in result.select("step_time") if record.samples]
    order = sorted(timed, key=lambda r: (r.text("workload"), r.integer("devices"), r.text("scaling"), r.median))
    return Table.of("Strategies", [_row(result, record) for record in order]).filled().explained(MEANINGS)


def _row(result: Result, record: Record) -> dict[str, str | Cell]:
    devices, rate = record.integer("devices"), record.integer("units") / record.median
    alone = single(result, record.text("workload"))
    return {
        "Workload": record.text("workload"),
        "Strategy": record.text("strategy"),
        "Devices": devices_cell(devices, record.integer("nodes", 1)),
        "Scaling": record.text("scaling") if devices > 1 else "",
        "Step": Cell(formatting.seconds(record.median), record.median),
        "Gain": _gain(record, alone, rate),
        "Rate": Cell(f"{formatting.count(rate)} {record.text('unit')}/s", rate),
        "MFU": share_of_peak(result, record, rate, operations_each(alone), "float32"),
        "Memory": memory(result, record),
        "Largest batch": _largest_batch(result, record),
        "Energy": energy(record),
        "Launching": launching(result, record),
    }


def devices_cell(devices: int, nodes: int) -> Cell:
    """'8', or '8 on 2 nodes', which comes after it."""
    return Cell(f"{devices} on {nodes} nodes" if nodes > 1 else str(devices), devices + nodes / 1e3)


def _gain(record: Record, alone: Record | None, rate: float) -> Cell:
    if alone is None or not alone.samples or alone is record:
        return EMPTY
    gain = rate * alone.median / alone.integer("units")
    return Cell(f"{gain:.2f}x", gain)


def share_of_peak(result: Result, record: Record, rate: float, each: float, dtype: str) -> Cell:
    """MFU by the operations that the model needs, `each` per sample or token, however often they are done."""
    peak = limits.of_products(result, dtype)
    if not (each and peak):
        return EMPTY
    share = each * rate / (record.integer("devices") * peak.rate * 1e12)
    return Cell(formatting.percent(share, 1), share)


def memory(result: Result, record: Record) -> Cell:
    """Memory of the fullest device; an empty cell without GPUs."""
    found = result.find("peak_memory", **place(record))
    return Cell(formatting.count_bytes(found.median), found.median) if found and found.samples else EMPTY


def _largest_batch(result: Result, record: Record) -> Cell:
    """Samples on each device; the same however many are timed."""
    found = result.find(
        "largest_batch", **{key: record.case.get(key) for key in ("workload", "strategy", "devices", "nodes")}
    )
    return Cell(f"{found.median:.0f}{' or more' if found.note else ''}", found.median) if found else EMPTY


def energy(record: Record) -> Cell:
    """Per sample or token."""
    joules = [entry.joules for entry in record.telemetry if entry.joules is not None]
    if not joules:
        return EMPTY
    each = statistics.median(joules) / record.integer("units")
    return Cell(f"{each:.3g} J/{record.text('unit')[:-1]}", each)


def launching(result: Result, record: Record) -> Cell:
    """Only of GPUs: a CPU rank does the work in the call that submits it."""
    enqueued = [entry.enqueue for entry in record.telemetry if entry.enqueue]
    if not enqueued or result.emulated:
        return EMPTY
    share = min(1.0, statistics.median(enqueued) / record.median)
    return Cell(formatting.percent(share), share)
