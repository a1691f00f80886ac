"""The records of several fresh processes, which measured the same cases, as one record a case."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scalecard.schema import Record


def merged(processes: Sequence[Sequence[Record]]) -> list[Record]:
    """One record a case and metric, in the order of the first process that has it; every sample is kept.

    Its telemetry has one entry a process, with `count` of its samples. A case that some processes could not measure
    keeps the samples of the others, and its note says what happened.
    """
    found: dict[str, list[Record]] = {}
    for records in processes:
        for record in records:
            found.setdefault(json.dumps([record.metric, record.case], sort_keys=True), []).append(record)
    return [_merge(records) for records in found.values()]


def _merge(records: Sequence[Record]) -> Record:
    measured = [record for record in records if record.status == "ok"]
    if not measured:
        return records[0]
    lost = [f"process {number}: {r.note}" for number, r in enumerate(records, 1) if r.status != "ok"]
    return replace(
        measured[0],
        samples=[sample for record in measured for sample in record.samples],
        telemetry=[_entry(record) for record in measured],
        note="; ".join(lost) or measured[0].note,
    )


def _entry(record: Record) -> dict[str, Any]:
    own = record.telemetry[0] if record.telemetry else {}
    return {"count": len(record.samples), **own}
