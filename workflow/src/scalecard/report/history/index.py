"""The numbers of all kept nights in one file, so that neither the report nor a trend opens the results of every night.

An entry is one experiment on one night: its block of config.yaml, what may explain a change, and the samples of the
numbers that its section names. 100 nights have some MB. The file can be made anew from the nights at any time.
"""

import gzip
import json
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scalecard.analysis.load_results import fit
from scalecard.records.atomic import write_atomically
from scalecard.records.files import InvalidResult, parse
from scalecard.records.record import Record, Result
from scalecard.records.strict_json import MOST_BYTES, Refused, loads, printable, read
from scalecard.report import sections
from scalecard.report.history.layout import HISTORY, INDEX, nights

VERSION = 1
KEPT = ".json.gz"
# What is kept of an environment: what an upgrade changes. Counters and idle clocks would differ every night.
FACTS = (
    "machine",
    "os",
    "python",
    "torch",
    "torchvision",
    "cuda",
    "cudnn",
    "nccl",
    "container_engine",
    "container",
    "commit",
    "dirty",
)


@dataclass(frozen=True, kw_only=True)
class Followed:
    """One number on one night; value and interval are in `unit`."""

    label: str
    unit: str
    amount: float
    record: Record

    @property
    def value(self) -> float:
        """The median time, or the rate at it."""
        return self._of(self.record.median)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its 95 % interval, the smaller limit first."""
        own = self.record.interval
        if own is None:
            return None
        low, high = sorted((self._of(own.low), self._of(own.high)))
        return low, high

    def _of(self, seconds: float) -> float:
        return self.amount / seconds if self.amount else seconds


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One experiment on one night of a platform."""

    night: str
    platform: str
    experiment: str
    finished: str
    spec: dict[str, Any]
    environment: dict[str, Any]
    numbers: list[Followed]


def entry_of(result: Result, night: str) -> Entry:
    """What is kept of a result in the index. InvalidResult if its section cannot compute its numbers."""
    known = result.experiment in sections.names()
    named = fit(result, lambda: list(sections.load(result.experiment).nightly(result))) if known else []
    return Entry(
        night=night,
        platform=result.platform,
        experiment=result.experiment,
        finished=result.finished,
        spec=result.spec,
        environment={key: result.environment[key] for key in FACTS},
        numbers=[Followed(label=n.label, unit=n.unit, amount=n.amount, record=_bare(n.record, n.label)) for n in named],
    )


def _bare(record: Record, label: str) -> Record:
    """The samples alone, to six digits. The label takes the case's place: the slowest device may be another one."""
    samples = [[float(f"{sample:.6g}") for sample in process] for process in record.samples]
    return Record(case={"number": label}, metric=record.metric, unit=record.unit, samples=samples)


def load(path: Path) -> list[Entry]:
    """The entries of an index, the oldest night first. InvalidResult names the file if it is not ours, or damaged."""
    try:
        data = loads(read(path))
        if data["version"] != VERSION:
            raise InvalidResult(path, f"of version {data['version']}, not {VERSION}.")
        return _ordered(_entry(path, each) for each in data["entries"])
    except Refused as error:
        raise InvalidResult(path, f"{error}.") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidResult(path, "is no index of kept nights.") from error


def _entry(path: Path, data: dict[str, Any]) -> Entry:
    numbers = [_number(each) for each in data.pop("numbers")]
    return Entry(**data, platform=path.parent.parent.name, numbers=numbers)


def _number(data: dict[str, Any]) -> Followed:
    samples: list[list[float]] = data["samples"]
    if not samples or not all(own and min(own) > 0 for own in samples):
        raise TypeError("no samples")
    record = Record(case={"number": data["label"]}, metric=data["metric"], unit="s", samples=samples)
    return Followed(label=data["label"], unit=data["unit"], amount=float(data["amount"]), record=record)


def save(entries: Iterable[Entry], platform: Path) -> None:
    """Write a platform's index, whole or not at all."""
    data = {"version": VERSION, "entries": [_as_data(entry) for entry in entries]}
    write_atomically(platform / HISTORY / INDEX, json.dumps(data, allow_nan=False, separators=(",", ":")) + "\n")


def _as_data(entry: Entry) -> dict[str, Any]:
    numbers = [
        {"label": n.label, "unit": n.unit, "amount": n.amount, "metric": n.record.metric, "samples": n.record.samples}
        for n in entry.numbers
    ]
    own = {key: value for key, value in asdict(entry).items() if key not in ("numbers", "platform")}
    return {**own, "numbers": numbers}


def refreshed(platform: Path) -> tuple[list[Entry], list[str]]:
    """The entries of the nights that are there: those of the index, and of nights that it lacks from their results.

    A night that was removed, or an index that cannot be read, needs no repair by hand. What cannot be read of a night,
    such as a result of an old schema, is left out and told.
    """
    path, there = platform / HISTORY / INDEX, {night.name: night for night in nights(platform)}
    try:
        known = load(path) if path.exists() else []
    except InvalidResult:
        known = []
    entries, left_out = [entry for entry in known if entry.night in there], list[str]()
    for name in there.keys() - {entry.night for entry in entries}:
        for file in files_of(there[name]):
            try:
                entries.append(entry_of(read_kept(file), name))
            except InvalidResult as error:
                left_out.append(f"left out: {error}")
    return _ordered(entries), sorted(left_out)


def files_of(night: Path) -> list[Path]:
    """The results that were kept of a night."""
    return sorted(night.glob(f"*{KEPT}"))


def read_kept(path: Path) -> Result:
    """InvalidResult names the file if it is damaged, or unpacks to more than a result can be."""
    try:
        with gzip.open(path) as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise InvalidResult(path, f"has more than the {MOST_BYTES} bytes that are read.")
        return parse(data.decode(), str(path))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InvalidResult(path, f"cannot be read ({printable(error)}).") from error


def _ordered(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (entry.night, entry.experiment))
