"""Verdicts on errors: what failed, and what the hardware counted before and after the load.

A device that computes or copies wrongly or whose driver reported an error, lost ranks, and a run that ended early.
"""

from collections.abc import Iterator

from scalecard.analysis.health.per_node import View, together, views
from scalecard.analysis.health.verdict import Kind, Part, Verdict
from scalecard.records.record import Reason, Record, Result

# The parts of the machine that the parts of a case belong to.
PARTS = {
    "compute": Part.COMPUTE,
    "load": Part.COMPUTE,
    "memory": Part.MEMORY,
    "host link": Part.HOST_LINKS,
    "device link": Part.GPU_LINKS,
    "collective": Part.COLLECTIVES,
    "node": Part.NETWORK,
    "node pair": Part.NETWORK,
}
KINDS = {Reason.DEVICE_FAULT: Kind.DEVICE_FAULT, Reason.NOT_PROVEN: Kind.WRONG_VALUES}
NORMAL = {
    Kind.DEVICE_FAULT: "no error of a GPU is normal",
    Kind.WRONG_VALUES: "only what a reference computes is normal",
    Kind.FAILED: "nothing fails on a healthy machine",
}
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


def faults(result: Result) -> Iterator[Verdict]:
    """One for everything that failed; what runs out of memory says nothing of a machine's health."""
    for at in [*views(result), View(together(result))]:
        yield from (_fault(at, record) for record in at.result.records if record.is_fault)


def _fault(at: View, record: Record) -> Verdict:
    kind = KINDS.get(record.reason or Reason.ERROR, Kind.FAILED)
    # The device, or the two ends of a link.
    place = [
        at.device(record.integer(axis)) for axis in ("device", "source", "target") if record.case.get(axis) is not None
    ]
    return Verdict(
        part=PARTS.get(record.text("part", ""), Part.HOST),
        measured=record.text("part", "health"),
        value=record.note,
        normal=NORMAL[kind],
        verdict="errors",
        kind=kind,
        place=tuple(place),
    )


def counters(result: Result) -> Iterator[Verdict]:
    """One for every counter that was read."""
    yield from (_counter(at, record) for at in views(result) for record in at.result.select("errors"))


def _counter(at: View, record: Record) -> Verdict:
    counter, adapter = record.text("counter"), record.text("adapter", "")
    part, kind, allowed = COUNTERS.get(counter, (Part.HOST, Kind.OTHER, 0))
    known, place = counter in COUNTERS, at.part(adapter) if adapter else at.device(record.integer("device"))
    grown = growth(record)
    wrong = known and grown > allowed
    return Verdict(
        part=part,
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
