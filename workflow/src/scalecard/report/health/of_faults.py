"""Verdicts on what failed: a device that computes or copies wrongly or whose driver reported an error, ranks that were
lost, and a run that ended early."""

from collections.abc import Iterator

from scalecard.records.record import Case, Reason, Record, Result
from scalecard.report.health import advice
from scalecard.report.health.by_node import View, together, views
from scalecard.report.health.verdict import Verdict

# The parts of the machine that the parts of a case belong to.
PARTS = {
    "compute": "compute",
    "load": "compute",
    "memory": "memory",
    "host link": "host links",
    "device link": "GPU links",
    "collective": "collectives",
    "node": "network",
    "node pair": "network",
}
KINDS = {Reason.DEVICE_FAULT: "device fault", Reason.NOT_PROVEN: "wrong values"}
NORMAL = {
    "device fault": "no error of a GPU is normal",
    "wrong values": "only what a reference computes is normal",
    "failed": "nothing fails on a healthy machine",
}


def judged(result: Result) -> Iterator[Verdict]:
    """One for everything that failed; what runs out of memory says nothing of a machine's health."""
    for at in [*views(result), View(together(result))]:
        yield from (_verdict(at, record) for record in at.result.records if record.is_fault)


def _verdict(at: View, record: Record) -> Verdict:
    kind = KINDS.get(record.reason or Reason.ERROR, "failed")
    place = _place(at, record.case)
    part = PARTS.get(str(record.case.get("part")), "host")
    what = str(record.case["part"]) if record.case else "health"
    return Verdict(
        part=part,
        what=f"{' and '.join(place)}, {what}" if place else what,
        value=record.note.removeprefix(f"{record.reason}: "),
        normal=NORMAL[kind],
        verdict="errors",
        advice=advice.for_kind(kind),
        kind=kind,
        place=place,
    )


def _place(at: View, case: Case) -> tuple[str, ...]:
    """The device, or the two ends of a link."""
    ends = [case[axis] for axis in ("device", "source", "target") if axis in case]
    return tuple(at.device(end) for end in ends if isinstance(end, int))
