"""What a schema cannot say of a result: that its parts agree with one another."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

IN_SECONDS = re.compile(r"(?:.*_)?time")


def problems(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(field, what is wrong) of the data of a result that the schema accepts; nothing if its parts agree."""
    yield from _moments(data)
    yield from _environment(data["environment"])
    cases: dict[str, int] = {}
    rounds: dict[tuple[str, ...], tuple[int, list[int]]] = {}
    for index, record in enumerate(data["records"]):
        where = f"$.records[{index}]"
        first = cases.setdefault(json.dumps([record["metric"], record["case"]], sort_keys=True), index)
        if first != index:
            yield f"{where}.case", f"the same case and metric as $.records[{first}]"
        yield from ((f"{where}.{field}", what) for field, what in _record(record))
        yield from ((f"{where}.samples", what) for what in _unpaired(index, record, rounds))


def _moments(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for field in ("started", "finished"):
        try:
            moment = datetime.fromisoformat(data[field])
        except ValueError:
            moment = None
        if moment is None or moment.utcoffset() is None:
            yield f"$.{field}", f"'{data[field]}' is no moment in ISO 8601 with its offset from UTC"


def _environment(environment: dict[str, Any]) -> Iterator[tuple[str, str]]:
    machine = environment["machine"]
    if environment["emulated"] != (machine["kind"] == "cpu"):
        yield "$.environment.emulated", f"{environment['emulated']}, but machine.kind is '{machine['kind']}'"
    if bool(machine["gpus"]) != (machine["kind"] != "cpu"):
        yield "$.environment.machine.gpus", f"{len(machine['gpus'])} GPUs, but machine.kind is '{machine['kind']}'"
    if len(environment["gpus"]) > len(machine["gpus"]):
        yield "$.environment.gpus", f"{len(environment['gpus'])} GPUs, but machine.gpus names {len(machine['gpus'])}"


def _record(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for index, check in enumerate(record["checks"]):
        if check["difference"] > check["tolerance"]:
            what = f"true, but the difference {check['difference']:g} is above the tolerance {check['tolerance']:g}"
            yield f"checks[{index}].passed", what
    for index, count in enumerate(record["work"]):
        if count["counted"] != count["expected"]:
            yield f"work[{index}].passed", f"true, but {count['counted']:g} were counted, not {count['expected']:g}"
    if IN_SECONDS.fullmatch(record["metric"]) and record["unit"] != "s":
        yield "unit", f"'{record['unit']}', but {record['metric']} is in 's'"
    if record["telemetry"] and len(record["telemetry"]) != len(record["samples"]):
        yield "telemetry", f"{len(record['telemetry'])} entries for {len(record['samples'])} processes"


def _unpaired(
    index: int, record: dict[str, Any], rounds: dict[tuple[str, ...], tuple[int, list[int]]]
) -> Iterator[str]:
    """Records of the same rounds are paired sample by sample, so each process must have as many of either."""
    if record["telemetry"]:
        counts = [len(samples) for samples in record["samples"]]
        together = tuple(entry["rounds_id"] for entry in record["telemetry"])
        first, others = rounds.setdefault(together, (index, counts))
        if counts != others:
            yield f"{counts} samples per process, but $.records[{first}] of the same rounds has {others}"
