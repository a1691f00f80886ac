"""Results as JSON files, whole and valid or refused with path and field; kept elsewhere if they cannot be saved.

What the types of the fields cannot say is checked here: that the fields agree with one another.

Besides, what a file says of the next run: failed cases are measured again once, and so are those that a smaller budget
had left out. A result says if its cases failed twice, and how long it was allowed to take.
"""

import functools
import json
import math
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pydantic
from pydantic.json_schema import GenerateJsonSchema

from scalecard import progress
from scalecard.records import strict_json
from scalecard.records.atomic import write_atomically
from scalecard.records.environment import Environment
from scalecard.records.record import Reason, Record, Result
from scalecard.records.strict_json import json_path, printable

NOT_RESULT_FILES = ("machine.json", "container.json")  # the other JSON files in a platform's folder
SUFFIX = ".unsaved"  # so that nothing takes it for a result
# What pydantic adds to the path of a value that may be of several types.
UNION_TAGS = ("int", "float", "str", "bool", "constrained-int", "constrained-float", "constrained-str")
WITHOUT_VALUE = ("missing", "missing_argument", "extra_forbidden", "unexpected_keyword_argument")
TWICE = "cases failed in two measurements in a row, so the next run does not measure them again by itself"
RANGES = {"s": (1e-12, 1e9), "fraction": (0, 1), "count": (0, 1e18), "samples": (1, 1e15), "B/s": (1, 1e15)}
WHOLE = ("count", "samples")
LONGEST_KEY = 100
IN_SECONDS = re.compile(r"(?:.*_)?time")


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
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != Result.schema_version:  # which explains everything else
        raise _refused(where, "$.schema_version", "missing" if version is None else _shortened(version))
    try:
        result = _reader().validate_json(text)
    except pydantic.ValidationError as error:
        raise _refused(where, *_most_telling(error)) from error
    for field, what in disagreements(result):
        raise _refused(where, field, what)
    return result


def _refused(where: str, field: str, what: str) -> InvalidResult:
    return InvalidResult(where, f"{field}: {what}. This is not a result of schema version {Result.schema_version}.")


def save(result: Result, path: Path) -> None:
    """Write whole or not at all what `load` accepts; InvalidResult means a bug of ours."""
    text = as_json(result, indent=1)
    parse(text, str(path))
    try:  # what no type describes is not in the text
        pydantic.TypeAdapter(Environment).validate_python(result.environment)
    except pydantic.ValidationError as error:
        field, what = _most_telling(error)
        raise InvalidResult(path, f"environment, {field}: {what}.") from error
    write_atomically(path, text + "\n")


def as_json(result: Result, indent: int | None = None) -> str:
    """The text of a result's file, without white space unless it is to be indented. ValueError for NaN.

    Nothing in it names the host, its user or its folders.
    """
    for record in result.records:
        if not all(math.isfinite(sample) for samples in record.samples for sample in samples):
            raise ValueError(f"{result.experiment}: samples of {record.metric} at {record.case} must be finite")
    data = _reader().dump_python(result, warnings=False)
    return json.dumps(data, allow_nan=False, indent=indent, separators=None if indent else (",", ":"))


def schema() -> dict[str, Any]:
    """The JSON schema of a result's file. What it cannot say, that the fields agree with one another, `load` checks."""
    return _reader().json_schema(mode="serialization", schema_generator=_AsWritten)


class _AsWritten(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        """A title would repeat the field's name."""
        return False

    def field_is_required(self, field: Any, total: bool) -> bool:
        """A file leaves out no field, also none that has a default."""
        return field["type"] == "dataclass-field" or super().field_is_required(field, total)


@functools.cache
def _reader() -> pydantic.TypeAdapter[Result]:
    return pydantic.TypeAdapter(Result)


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
        for field, what in (*_status(record), *_samples(record), *_proofs(record), *_unpaired(index, record, rounds)):
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


def _proofs(record: Record) -> Iterator[tuple[str, str]]:
    for index, check in enumerate(record.checks):
        if not check.passed:
            what = f"true, but the difference {check.difference:g} is above the tolerance {check.tolerance:g}"
            yield f"checks[{index}].passed", what
    for index, count in enumerate(record.work):
        if not count.passed:
            yield f"work[{index}].passed", f"true, but {count.counted:g} were counted, not {count.expected:g}"
    for field, entries in (("telemetry", record.telemetry), ("runs", record.runs)):
        if entries and len(entries) != len(record.samples):
            yield field, f"{len(entries)} entries for {len(record.samples)} processes"


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


def _most_telling(error: pydantic.ValidationError) -> tuple[str, str]:
    """(field, what is wrong) of what is nearest to the root."""
    errors = error.errors(include_url=False)
    first = min(errors, key=lambda each: len(each["loc"]))
    *where, last = first["loc"] or ("",)
    where += [last] * (last not in (*UNION_TAGS, ""))
    bare = first["type"] in WITHOUT_VALUE or isinstance(first["input"], dict)
    value = "" if bare else f"{_shortened(first['input'])}: "
    return json_path(where), f"{value}{printable(first['msg'].removeprefix('Value error, '))}"


def _shortened(value: object, limit: int = 100) -> str:
    text = printable(repr(value))
    return text if len(text) <= limit else text[:limit] + "..."


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
    except (OSError, ValueError) as error:
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
    return any(r.status == "failed" for r in records) and _num_failed(_content(output)) > 0


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
