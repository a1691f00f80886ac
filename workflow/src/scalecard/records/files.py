"""Results as JSON files, whole and valid or refused with path and field; kept elsewhere if they cannot be saved.

What a schema cannot say of a result: that its parts agree with one another.

What the next run measures again by itself: failed cases once, and those that a smaller budget had left out.

A result says if its cases failed twice, and how long it was allowed to take.
"""

import contextlib
import dataclasses
import functools
import json
import math
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import fastjsonschema
import jsonschema
from jsonschema.exceptions import best_match, relevance

from scalecard import progress
from scalecard.records import strict_json
from scalecard.records.atomic import write_atomically
from scalecard.records.record import (
    SCHEMA_VERSION,
    Check,
    Count,
    GpuState,
    HardwareState,
    Reason,
    Record,
    Result,
    Spread,
    Telemetry,
)
from scalecard.records.redact import without_identities
from scalecard.records.strict_json import json_path, printable

SCHEMA = Path(__file__).parents[3] / "schemas" / "result.schema.json"
NOT_RESULT_FILES = ("machine.json", "container.json")  # the other JSON files in a platform's folder
SUFFIX = ".unsaved"  # so that nothing takes it for a result
IN_SECONDS = re.compile(r"(?:.*_)?time")
TWICE = "cases failed in two measurements in a row, so the next run does not measure them again by itself"


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
        yield from ((f"{where}.{field}", what) for field, what in _problems_of_record(record))
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


def _problems_of_record(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
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


class InvalidResult(ValueError):
    """A result file that cannot be used: the message names the file and the field, `reason` the field alone."""

    def __init__(self, where: Path | str, reason: str) -> None:
        super().__init__(f"{printable(where)}: {reason}")
        self.reason = reason


def is_result_file(path: Path) -> bool:
    """Whether a path in a platform's folder is named like a result."""
    return path.suffix == ".json" and path.name not in NOT_RESULT_FILES


def load(path: Path) -> Result:
    """Read a result. InvalidResult names the file and the field if it is corrupt, truncated or not ours."""
    try:
        text = strict_json.read(path)
    except strict_json.Refused as error:
        raise InvalidResult(path, f"{error}.") from error
    return parse(text, str(path))


def parse(text: str, where: str) -> Result:
    """A result from the text of a file; `where` names it in errors."""
    try:
        data = strict_json.loads(text)
    except strict_json.Refused as error:
        field = f"{json_path(error.path)}: " if error.path else ""
        raise InvalidResult(where, f"{field}{error}.") from error
    problem = _first_problem(data)
    if problem:
        field, what = problem
        raise InvalidResult(where, f"{field}: {what}. This is not a result of schema version {SCHEMA_VERSION}.")
    without_identities(data)
    records = [_record(record) for record in data.pop("records")]
    return Result(**data, records=records)


def save(result: Result, path: Path) -> None:
    """Write whole or not at all what `load` accepts; InvalidResult means a bug of ours."""
    text = as_json(result, indent=1)
    parse(text, str(path))
    write_atomically(path, text + "\n")


def as_json(result: Result, indent: int | None = None) -> str:
    """The text of a result's file, without white space unless it is to be indented. ValueError for NaN.

    Nothing in it names the host, its user or its folders.
    """
    for record in result.records:
        if not all(math.isfinite(sample) for samples in record.samples for sample in samples):
            raise ValueError(f"{result.experiment}: samples of {record.metric} at {record.case} must be finite")
    data = dataclasses.asdict(result)
    for written, record in zip(data["records"], result.records, strict=True):
        verdicts: list[Check | Count] = [*record.checks, *record.work]
        for entry, proven in zip([*written["checks"], *written["work"]], verdicts, strict=True):
            entry["passed"] = proven.passed
        written["uncertainty"] = _uncertainty(record)
    without_identities(data)
    return json.dumps(data, allow_nan=False, indent=indent, separators=None if indent else (",", ":"))


def refuse_mixed_machines(results: Iterable[Result], where: str) -> None:
    """ValueError if one platform's results were measured on different machines; it names files and facts."""
    seen: dict[str, Result] = {}
    for result in results:
        first = seen.setdefault(result.platform, result)
        ours, theirs = (r.environment for r in (first, result))
        if ours["fingerprint"] != theirs["fingerprint"]:
            a, b = ours["machine"], theirs["machine"]
            facts = "; ".join(f"{key} {a[key]} and {b[key]}" for key in a if a[key] != b.get(key))
            hosts = f"hosts, hashed: {ours['host']} and {theirs['host']}"
            raise ValueError(
                f"{where}: {first.experiment}.json and {result.experiment}.json of platform '{result.platform}' were"
                f" measured on different machines ({facts}; {hosts}); remove the older files, or give each machine"
                " its own label (platform: in config.yaml)"
            )


def _first_problem(data: Any) -> tuple[str, str] | None:
    """(field, what is wrong): what the schema says most about, else what does not agree; None for a result."""
    with contextlib.suppress(fastjsonschema.JsonSchemaValueException):
        _quick_check()(data)
        return next(problems(data), None)
    error = best_match(jsonschema.Draft202012Validator(_schema()).iter_errors(data), key=_how_telling)
    assert error, "the schema's two readers disagree"
    return json_path(error.absolute_path), _shortened(printable(error.message))


def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(SCHEMA.read_bytes())
    return schema


@functools.cache
def _quick_check() -> Callable[[Any], Any]:
    """Compiled, because a report of many platforms reads hundreds of results; it says less than jsonschema does."""
    check: Callable[[Any], Any] = fastjsonschema.compile(_schema())
    return check


def _uncertainty(record: Record) -> dict[str, list[float] | None]:
    """For readers of the file; recomputed from the samples when it is loaded."""
    bounds = {"within": record.within, "between": record.between} if record.samples else {}
    return {name: [value.low, value.high] if value else None for name, value in bounds.items()}


def _how_telling(error: jsonschema.ValidationError) -> tuple[bool, Any]:
    """A different schema version explains everything else; next comes the error nearest to the root."""
    return error.json_path == "$.schema_version", relevance(error)


def _shortened(message: str, limit: int = 200) -> str:
    return message if len(message) <= limit else message[:limit] + "..."


def _record(data: dict[str, Any]) -> Record:
    data.pop("uncertainty")
    checks = [Check(**_without_verdict(check)) for check in data.pop("checks")]
    work = [Count(**_without_verdict(count)) for count in data.pop("work")]
    telemetry = [_telemetry(entry) for entry in data.pop("telemetry")]
    reason = data.pop("reason")
    return Record(**data, reason=Reason(reason) if reason else None, checks=checks, work=work, telemetry=telemetry)


def _without_verdict(data: dict[str, Any]) -> dict[str, Any]:
    """`passed` is there for readers of the file; it is computed from the rest."""
    return {key: value for key, value in data.items() if key != "passed"}


def _telemetry(data: dict[str, Any]) -> Telemetry:
    state = data.pop("state")
    return Telemetry(**data, state=_hardware_state(state) if state else None)


def _hardware_state(data: dict[str, Any]) -> HardwareState:
    gpus, cpu_mhz = data.pop("gpus"), data.pop("cpu_mhz")
    return HardwareState(**data, gpus=[_gpu_state(gpu) for gpu in gpus], cpu_mhz=_spread(cpu_mhz))


def _gpu_state(data: dict[str, Any]) -> GpuState:
    clock, temperature, power = (_spread(data.pop(key)) for key in ("sm_clock_mhz", "temperature_c", "power_w"))
    return GpuState(**data, sm_clock_mhz=clock, temperature_c=temperature, power_w=power)


def _spread(data: dict[str, float] | None) -> Spread | None:
    return Spread(**data) if data else None


class NotSaved(OSError):
    """A result could not be written to its file; the message names the file, the reason and what was kept."""


def refuse_unsavable(result: Result, path: Path) -> None:
    """Before anything is measured: NotSaved if a result like this one, which has no records yet, cannot be written.

    Tried on a file of no name in the folder, so nothing is left behind; of a missing folder, in the nearest one above.
    """
    nearest = next(folder for folder in path.absolute().parents if folder.exists())
    try:
        if path.is_dir():
            raise OSError("it is a folder")
        with tempfile.TemporaryDirectory(dir=nearest, prefix=f".{path.name}.") as folder:
            save(replace(result, records=[Record.skipped({}, "not measured yet")]), Path(folder, path.name))
    except (OSError, ValueError) as error:
        raise NotSaved(f"{path}: nothing was measured, because it could not be saved: {_reason(error)}") from error


def save_or_keep(result: Result, path: Path, *, elsewhere: Iterable[Path]) -> None:
    """Save; or keep the result beside its own file or in the first other folder that takes it, and raise NotSaved."""
    try:
        save(result, path)
    except (OSError, ValueError, jsonschema.ValidationError) as error:
        kept = _keep(result, path.name + SUFFIX, [path.parent, *elsewhere])
        raise NotSaved(f"{path}: could not be written: {_reason(error)}. {kept}") from error


def _keep(result: Result, name: str, folders: Iterable[Path]) -> str:
    """Where the result is now, in words. A number that JSON does not know is kept as Python writes it."""
    try:
        text = as_json(result, indent=1)
    except ValueError:
        text = json.dumps(asdict(result))
    tried = []
    for folder in folders:
        try:
            write_atomically(folder / name, text)
        except OSError:
            tried.append(str(folder))
        else:
            return f"What was measured is in {folder / name}"
    return f"What was measured is lost, because nothing could be written to {', '.join(tried)} either"


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).splitlines()[0]


def failed_again(records: Sequence[Record], output: Path) -> bool:
    """Whether both these records and the result that they replace have failed cases."""
    return any(r.status == "failed" for r in records) and num_failed(output) > 0


def is_due(path: Path, seconds: int) -> str:
    """Why a result file is measured again if that may take so many seconds (0: any), or ''.

    Not if it cannot be read.
    """
    content = _content(path)
    failed, had = _num_failed(content), content.get("budget_seconds", 0)
    late = sum(record["reason"] == Reason.NO_TIME for record in content["records"])
    if failed and not content.get("failed_again"):
        return f"{progress.counted(failed, 'case')} failed last time: measuring it once more"
    if late and had and (seconds > had or not seconds):
        return f"{progress.counted(late, 'case')} had no time in {had} s, and now there is more: measuring it again"
    return ""


def num_failed(path: Path) -> int:
    """Failed cases in a result file; 0 if it is missing or cannot be read."""
    return _num_failed(_content(path))


def _num_failed(content: dict[str, Any]) -> int:
    return sum(record["status"] == "failed" for record in content["records"])


def _content(path: Path) -> dict[str, Any]:
    """A result file's data, of which `load` may refuse the rest; no records if it is missing or no result."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        known = [{"status": record["status"], "reason": record["reason"]} for record in found["records"]]
        return {**found, "records": known}
    except (OSError, ValueError, KeyError, TypeError):
        return {"records": []}
