"""Results as JSON files. A file is either whole and valid, or refused with its path and the field that is wrong."""

import contextlib
import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import fastjsonschema
import jsonschema
from jsonschema.exceptions import best_match, relevance

from scalecard.records import strict_json
from scalecard.records.atomic import write_atomically
from scalecard.records.cross_checks import problems
from scalecard.records.record import SCHEMA_VERSION, Check, Count, Reason, Record, Result
from scalecard.records.redact import without_identities
from scalecard.records.strict_json import json_path, printable
from scalecard.records.telemetry import GpuState, HardwareState, Spread, Telemetry

SCHEMA = Path(__file__).parents[3] / "schemas" / "result.schema.json"
NOT_RESULT_FILES = ("machine.json", "container.json")  # the other JSON files in a platform's folder


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
