"""What the types of a result's fields cannot say: that the fields agree with one another."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from scalecard.records.record import Record, Result

RANGES = {"s": (1e-12, 1e9), "fraction": (0, 1), "count": (0, 1e18), "samples": (1, 1e15), "B/s": (1, 1e15)}
WHOLE = ("count", "samples")
LONGEST_KEY = 100
IN_SECONDS = re.compile(r"(?:.*_)?time")


def disagreements(result: Result) -> Iterator[tuple[str, str]]:
    """(field, what is wrong) of a result whose fields are right one by one; nothing if they agree with one another."""
    yield from _environment(result.environment)
    if any(not 1 <= len(key) <= LONGEST_KEY for key in result.spec):
        yield "$.spec", f"the name of a setting has 1 to {LONGEST_KEY} letters"
    cases: dict[str, int] = {}
    rounds: dict[tuple[str, ...], tuple[int, list[int]]] = {}
    for index, record in enumerate(result.records):
        where = f"$.records[{index}]"
        first = cases.setdefault(json.dumps([record.metric, record.case], sort_keys=True), index)
        if first != index:
            yield f"{where}.case", f"the same case and metric as $.records[{first}]"
        for field, what in (*_status(record), *_samples(record), *_verdicts(record), *_unpaired(index, record, rounds)):
            yield f"{where}.{field}", what


def _environment(environment: dict[str, Any]) -> Iterator[tuple[str, str]]:
    machine = environment["machine"]
    if environment["emulated"] != (machine["kind"] == "cpu"):
        yield "$.environment.emulated", f"{environment['emulated']}, but machine.kind is '{machine['kind']}'"
    if bool(machine["gpus"]) != (machine["kind"] != "cpu"):
        yield "$.environment.machine.gpus", f"{len(machine['gpus'])} GPUs, but machine.kind is '{machine['kind']}'"
    if len(environment["gpus"]) > len(machine["gpus"]):
        yield "$.environment.gpus", f"{len(environment['gpus'])} GPUs, but machine.gpus names {len(machine['gpus'])}"


def _status(record: Record) -> Iterator[tuple[str, str]]:
    measured = record.status == "ok"
    if measured != bool(record.samples):
        yield "samples", f"of {len(record.samples)} processes, but the case is {record.status}"
    if measured != (record.reason is None):
        yield "reason", f"{record.reason}, but the case is {record.status}"
    if not measured and not record.note:
        yield "note", f"must say why the case is {record.status}"
    if any(not 1 <= len(axis) <= LONGEST_KEY for axis in record.case):
        yield "case", f"the name of an axis has 1 to {LONGEST_KEY} letters"


def _samples(record: Record) -> Iterator[tuple[str, str]]:
    if IN_SECONDS.fullmatch(record.metric) and record.unit != "s":
        yield "unit", f"'{record.unit}', but {record.metric} is in 's'"
    low, high = RANGES.get(record.unit, (0, math.inf))
    for number, process in enumerate(record.samples):
        if record.unit == "count" and len(process) != 2:
            yield f"samples[{number}]", f"{len(process)} values of a counter, which is read before and after"
        for place, sample in enumerate(process):
            if not low <= sample <= high or (record.unit in WHOLE and sample != int(sample)):
                kind = "whole number" if record.unit in WHOLE else "number"
                yield f"samples[{number}][{place}]", f"{sample} is no {kind} from {low:g} to {high:g}"


def _verdicts(record: Record) -> Iterator[tuple[str, str]]:
    for index, check in enumerate(record.checks):
        if not check.passed:
            what = f"true, but the difference {check.difference:g} is above the tolerance {check.tolerance:g}"
            yield f"checks[{index}].passed", what
    for index, count in enumerate(record.work):
        if not count.passed:
            yield f"work[{index}].passed", f"true, but {count.counted:g} were counted, not {count.expected:g}"
    if record.telemetry and len(record.telemetry) != len(record.samples):
        yield "telemetry", f"{len(record.telemetry)} entries for {len(record.samples)} processes"
    if record.runs and len(record.runs) != len(record.samples):
        yield "runs", f"{len(record.runs)} entries for {len(record.samples)} processes"


def _unpaired(
    index: int, record: Record, rounds: dict[tuple[str, ...], tuple[int, list[int]]]
) -> Iterator[tuple[str, str]]:
    """Records of the same rounds are paired sample by sample, so each process must have as many of either."""
    if record.telemetry:
        counts = [len(samples) for samples in record.samples]
        together = tuple(entry.rounds_id for entry in record.telemetry)
        first, others = rounds.setdefault(together, (index, counts))
        if counts != others:
            what = f"{counts} samples per process, but $.records[{first}] of the same rounds has {others}"
            yield "samples", what
