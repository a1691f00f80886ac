"""Verdicts on what failed: a device that computes or copies wrongly or whose driver reported an error, ranks that were
lost, and a run that ended early."""

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


def judged(result: Result) -> Iterator[Verdict]:
    """One for everything that failed; what runs out of memory says nothing of a machine's health."""
    for at in [*views(result), View(together(result))]:
        yield from (_verdict(at, record) for record in at.result.records if record.is_fault)


def _verdict(at: View, record: Record) -> Verdict:
    kind = KINDS.get(record.reason or Reason.ERROR, Kind.FAILED)
    # The device, or the two ends of a link.
    place = [
        at.device(record.integer(axis)) for axis in ("device", "source", "target") if record.case.get(axis) is not None
    ]
    return Verdict(
        part=PARTS.get(str(record.case.get("part")), Part.HOST),
        who=" and ".join(map(str, place)),
        measured=str(record.case.get("part", "health")),
        value=record.note,
        normal=NORMAL[kind],
        verdict="errors",
        kind=kind,
        place=tuple(place),
    )
