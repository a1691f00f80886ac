"""Merges the records of several fresh processes that measured the same cases into one record per case."""

import json
from collections.abc import Sequence
from dataclasses import replace

from scalecard.records.record import Record


def merged(processes: Sequence[Sequence[Record]]) -> list[Record]:
    """One record per case and metric, in the order of the first process that has it; every sample is kept.

    A case that some processes could not measure keeps the samples of the others, and its note says what happened.
    """
    found: dict[str, list[Record]] = {}
    for records in processes:
        for record in records:
            found.setdefault(json.dumps([record.metric, record.case], sort_keys=True), []).append(record)
    return [_merge(records) for records in found.values()]


def _merge(records: Sequence[Record]) -> Record:
    measured = [record for record in records if record.status == "ok"]
    if not measured:
        first = records[0]
        notes = (record.note if record.reason is first.reason else record.why for record in records)
        return replace(first, note="; ".join(dict.fromkeys(notes)))
    lost = [f"process {number}: {r.why}" for number, r in enumerate(records, 1) if r.status != "ok"]
    return replace(
        measured[0],
        samples=[samples for record in measured for samples in record.samples],
        telemetry=[entry for record in measured for entry in record.telemetry],
        note="; ".join(lost) or measured[0].note,
    )
