"""Verdicts on counters of errors, read before and after the load."""

from collections.abc import Iterator

from scalecard.analysis.health.per_node import View, views
from scalecard.analysis.health.verdict import Kind, Part, Verdict
from scalecard.records.record import Record, Result

# Of each counter: its part of the machine, what it is evidence of, and by how much it may grow in the minutes of a run.
# Eight replays a minute are NVIDIA's limit for PCIe, and CRC errors matter from 100 a second on (DCGM,
# dcgm_gpu_hardware_limits.h); those of InfiniBand are our own.
COUNTERS = {
    "ECC corrected": (Part.MEMORY, Kind.MEMORY_ERRORS, 0),
    "ECC uncorrected": (Part.MEMORY, Kind.MEMORY_ERRORS, 0),
    "rows remapped": (Part.MEMORY, Kind.MEMORY_ERRORS, 0),
    "XID": (Part.COMPUTE, Kind.XID, 0),
    "NVLink replays": (Part.GPU_LINKS, Kind.NVLINK_ERRORS, 0),
    "NVLink CRC errors": (Part.GPU_LINKS, Kind.NVLINK_ERRORS, 100),
    "PCIe replays": (Part.HOST_LINKS, Kind.PCIE_ERRORS, 8),
    "symbol errors": (Part.NETWORK, Kind.ADAPTER_ERRORS, 10),
    "link downed": (Part.NETWORK, Kind.ADAPTER_ERRORS, 0),
    "receive errors": (Part.NETWORK, Kind.ADAPTER_ERRORS, 10),
    "send discards": (Part.NETWORK, Kind.ADAPTER_ERRORS, 100),
}


def judged(result: Result) -> Iterator[Verdict]:
    """One for every counter that was read."""
    yield from (_judged(at, record) for at in views(result) for record in at.result.select("errors"))


def _judged(at: View, record: Record) -> Verdict:
    counter = str(record.case["counter"])
    part, kind, allowed = COUNTERS.get(counter, (Part.HOST, Kind.OTHER, 0))
    adapter, known = record.case.get("adapter"), counter in COUNTERS
    place = at.part(str(adapter)) if adapter else at.device(record.integer("device"))
    grown = growth(record)
    wrong = known and grown > allowed
    return Verdict(
        part=part,
        who=str(place),
        measured=counter,
        value=f"{grown} more during the load" if grown else "none during the load",
        normal=f"up to {allowed} is normal" if allowed else "none is normal",
        verdict="errors" if wrong else "normal" if known else "not judged",
        kind=kind,
        place=(place,),
    )


def growth(record: Record) -> int:
    """How much more it counts after the load than before; a counter that was reset counts from 0."""
    before, after = (int(value) for value in record.samples[0])
    return after - before if after >= before else after
