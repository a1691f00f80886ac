"""What a measurement leaves behind: Result, Record and Check, loaded and saved as JSON.

Raw samples are stored; everything computed from them is a property. A file is either whole and valid or refused.
"""

import dataclasses
import functools
import itertools
import json
import os
import statistics
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema

from scalecard import stats

SCHEMA_VERSION = 1
SCHEMA = Path(__file__).parents[2] / "schemas" / "result.schema.json"

NO_RESULTS = ("machine.json", "container.json")  # other JSON files of a platform's folder

Scalar = str | int | float | bool | None
Case = dict[str, Scalar]


@dataclass(frozen=True, kw_only=True)
class Check:
    """What was proven about a case before it was timed: `difference` must not exceed `tolerance`."""

    name: str
    difference: float
    tolerance: float

    @property
    def passed(self) -> bool:
        return self.difference <= self.tolerance


@dataclass(frozen=True, kw_only=True)
class Record:
    """One measured (or skipped, or failed) case. `samples` are in `unit`: seconds, bytes, fraction."""

    case: Case
    metric: str
    unit: str
    samples: list[float] = field(default_factory=list)
    status: str = "ok"
    note: str = ""
    checks: list[Check] = field(default_factory=list)
    telemetry: list[dict[str, Any]] = field(default_factory=list)

    @functools.cached_property
    def processes(self) -> list[list[float]]:
        """The samples of each process that measured this, in the order in which they were taken."""
        counts = [entry["count"] for entry in self.telemetry if "count" in entry] or [len(self.samples)]
        ends = list(itertools.accumulate(counts))
        return [self.samples[end - count : end] for count, end in zip(counts, ends, strict=True) if count]

    @functools.cached_property
    def median(self) -> float:
        """The median over processes of each one's median."""
        return statistics.median(statistics.median(samples) for samples in self.processes)

    @functools.cached_property
    def within(self) -> stats.Interval | None:
        """Uncertainty within a process: the order-statistic interval that is typical of them, around the median."""
        return stats.within(self.processes)

    @functools.cached_property
    def between(self) -> stats.Interval | None:
        """Uncertainty between fresh processes; None where there was only one."""
        return stats.between(self.processes)

    @property
    def interval(self) -> stats.Interval | None:
        """The larger of the two."""
        return stats.larger(self.within, self.between)

    @functools.cached_property
    def doubts(self) -> list[str]:
        """In plain words, what makes the interval within a process too narrow."""
        return stats.doubts(self.processes)

    @functools.cached_property
    def iqr(self) -> float:
        return stats.interquartile_range(self.samples)

    def matches(self, **case: Scalar) -> bool:
        return all(self.case.get(key) == value for key, value in case.items())

    def over(self, other: "Record") -> stats.Ratio:
        """self / other: paired where both were measured in the same rounds, unpaired otherwise."""
        groups, theirs = ([entry.get("rounds_id") for entry in r.telemetry] for r in (self, other))
        if groups and None not in groups and groups == theirs:
            return stats.paired_ratio(self.processes, other.processes)
        return stats.unpaired_ratio(self.processes, other.processes)


@dataclass(frozen=True, kw_only=True)
class Result:
    """All records of one experiment on one platform, with what they were measured on and from."""

    experiment: str
    platform: str
    spec: dict[str, Any]
    environment: dict[str, Any]
    started: str
    finished: str
    warnings: list[str]
    records: list[Record]
    schema_version: int = SCHEMA_VERSION

    @property
    def emulated(self) -> bool:
        """Whether CPU workers or CPU ranks stood in for GPUs."""
        return bool(self.environment["emulated"])

    def select(self, metric: str, **case: Scalar) -> list[Record]:
        """The measured records of a metric whose case has these values."""
        return [r for r in self.records if r.metric == metric and r.status == "ok" and r.matches(**case)]

    def find(self, metric: str, **case: Scalar) -> Record | None:
        """The first such record with samples, or None."""
        return next(iter(self.select(metric, **case)), None)


class InvalidResult(ValueError):
    """A result file that cannot be used; the message names the file and the field."""


@functools.cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))


def load(path: Path) -> Result:
    """Read a result. InvalidResult names the file and field where it is corrupt, truncated or foreign."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidResult(f"{path}: not a readable file ({error}).") from error
    return parse(text, str(path))


def parse(text: str, where: str) -> Result:
    """A result from the text of a file; `where` names it in errors."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidResult(
            f"{where}: not a readable JSON file ({error}). Remove it; the next run measures it again."
        ) from error
    for problem in sorted(_validator().iter_errors(data), key=lambda e: e.json_path):
        raise InvalidResult(
            f"{where}: {problem.json_path}: {_brief(problem.message)}. This is no result of schema version"
            f" {SCHEMA_VERSION}: remove the file or measure it again."
        )
    records = [_record(r) for r in data.pop("records")]
    return Result(**data, records=records)


def _uncertainty(record: Record) -> dict[str, list[float] | None]:
    """For readers of the file; computed anew from the samples when it is loaded."""
    bounds = {"within": record.within, "between": record.between} if record.samples else {}
    return {name: [value.low, value.high] if value else None for name, value in bounds.items()}


def _brief(message: str, limit: int = 200) -> str:
    return message if len(message) <= limit else message[:limit] + "..."


def _record(data: dict[str, Any]) -> Record:
    data.pop("uncertainty")
    checks = [Check(name=c["name"], difference=c["difference"], tolerance=c["tolerance"]) for c in data.pop("checks")]
    return Record(**data, checks=checks)


def save(result: Result, path: Path) -> None:
    """Validate, write beside `path`, flush, rename: readers see the old file or the whole new one."""
    data = dataclasses.asdict(result)
    for record, source in zip(data["records"], result.records, strict=True):
        for check, proven in zip(record["checks"], source.checks, strict=True):
            check["passed"] = proven.passed
        record["uncertainty"] = _uncertainty(source)
    data = json.loads(json.dumps(data, allow_nan=False))
    _validator().validate(data)
    write_atomically(path, json.dumps(data, indent=1) + "\n")


def write_atomically(path: Path, text: str) -> None:
    """Write text to a temporary file in the same folder, flush it to disk, then rename it to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def refuse_mixed(results: Iterable[Result], where: str) -> None:
    """ValueError where one platform's results were measured on different machines; it names files and facts."""
    seen: dict[str, Result] = {}
    for result in results:
        first = seen.setdefault(result.platform, result)
        ours, theirs = (r.environment for r in (first, result))
        if ours["fingerprint"] != theirs["fingerprint"]:
            a, b = ours["machine"], theirs["machine"]
            facts = "; ".join(f"{key} {a[key]} and {b[key]}" for key in a if a[key] != b.get(key))
            hosts = f"hosts, hashed: {ours.get('host')} and {theirs.get('host')}"
            raise ValueError(
                f"{where}: {first.experiment}.json and {result.experiment}.json of platform '{result.platform}' were"
                f" measured on different machines ({facts}; {hosts}); remove the older files, or give each machine a"
                " label of its own (platform: in config.yaml)"
            )


def worst(checks: Iterable[Check]) -> Check | None:
    """The check closest to (or furthest beyond) its tolerance."""
    return max(checks, key=lambda c: c.difference - c.tolerance, default=None)
