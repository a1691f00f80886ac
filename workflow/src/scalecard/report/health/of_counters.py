"""Verdicts on counters of errors, read before and after the load."""

from collections.abc import Iterator

from scalecard.records.record import Record, Result
from scalecard.report.health import advice, measured
from scalecard.report.health.by_node import View, views
from scalecard.report.health.verdict import Verdict

# Of each counter: its part of the machine, what it is evidence of, and by how much it may grow in the minutes of a run.
# Eight replays a minute are NVIDIA's limit for PCIe, and CRC errors matter from 100 a second on (DCGM,
# dcgm_gpu_hardware_limits.h); those of InfiniBand are our own.
COUNTERS = {
    "ECC corrected": ("memory", "memory errors", 0),
    "ECC uncorrected": ("memory", "memory errors", 0),
    "rows remapped": ("memory", "memory errors", 0),
    "XID": ("compute", "XID", 0),
    "NVLink replays": ("GPU links", "NVLink errors", 0),
    "NVLink CRC errors": ("GPU links", "NVLink errors", 100),
    "PCIe replays": ("host links", "PCIe errors", 8),
    "symbol errors": ("network", "adapter errors", 10),
    "link downed": ("network", "adapter errors", 0),
    "receive errors": ("network", "adapter errors", 10),
    "send discards": ("network", "adapter errors", 100),
}


def judged(result: Result) -> Iterator[Verdict]:
    """One for every counter that was read."""
    yield from (_judged(at, record) for at in views(result) for record in at.result.select("errors"))


def _judged(at: View, record: Record) -> Verdict:
    counter = str(record.case["counter"])
    part, kind, allowed = COUNTERS.get(counter, ("host", "", 0))
    adapter = "adapter" in record.case
    whose = at.name(str(record.case["adapter"])) if adapter else at.device(measured.number(record, "device"))
    grown = growth(record)
    wrong = bool(kind) and grown > allowed
    return Verdict(
        part=part,
        what=f"{whose}, {counter}",
        value=f"{grown} more during the load" if grown else "none during the load",
        normal=f"up to {allowed} is normal" if allowed else "none is normal",
        verdict="errors" if wrong else "normal" if kind else "not judged",
        advice=advice.for_kind(kind) if wrong else "",
        kind=kind,
        place=(whose,),
    )


def growth(record: Record) -> int:
    """How much more it counts after the load than before; a counter that was reset counts from 0."""
    before, after = (int(value) for value in record.samples[0])
    return after - before if after >= before else after
