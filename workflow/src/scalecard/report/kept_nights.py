"""Keeps results as nights of a platform's history, whole or not at all, with the numbers of all nights in one file.

This index lets the report and a trend open no night's results. An entry is one experiment on one night: its block of
config.yaml, what may explain a change, and the samples of the numbers that its section names. 100 nights have some MB.
The file can be made anew from the nights at any time.
"""

import contextlib
import fcntl
import gzip
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scalecard.analysis.platforms import fit
from scalecard.records import strict_json
from scalecard.records.atomic import write_atomically
from scalecard.records.files import InvalidResult, is_result_file, parse, refuse_mixed_machines
from scalecard.records.record import Record, Result
from scalecard.report import sections
from scalecard.report.night_folders import HISTORY, INDEX, night_name, nights
from scalecard.report.sections import Number

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
class Entry:
    """One experiment on one night of a platform."""

    night: str
    platform: str
    experiment: str
    finished: str
    spec: dict[str, Any]
    environment: dict[str, Any]
    numbers: list[Number]


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
        numbers=[replace(number, record=_bare(number)) for number in named],
    )


def _bare(number: Number) -> Record:
    """The samples alone, to six digits. The label takes the case's place: the slowest device may be another one."""
    record = number.record
    samples = [[float(f"{sample:.6g}") for sample in process] for process in record.samples]
    return Record(case={"number": number.label}, metric=record.metric, unit=record.unit, samples=samples)


def load(path: Path) -> list[Entry]:
    """The entries of an index, the oldest night first. InvalidResult names the file if it is not ours, or damaged."""
    try:
        data = strict_json.loads(strict_json.read(path))
        if data["version"] != VERSION:
            raise InvalidResult(path, f"of version {data['version']}, not {VERSION}.")
        platform = path.parent.parent.name
        entries = (
            Entry(**{**each, "platform": platform, "numbers": [*map(_number, each["numbers"])]})
            for each in data["entries"]
        )
        return sorted(entries, key=lambda entry: (entry.night, entry.experiment))
    except strict_json.Refused as error:
        raise InvalidResult(path, f"{error}.") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidResult(path, "is no index of kept nights.") from error


def _number(data: dict[str, Any]) -> Number:
    samples: list[list[float]] = data["samples"]
    if not samples or not all(own and min(own) > 0 for own in samples):
        raise TypeError("no samples")
    record = Record(case={"number": data["label"]}, metric=data["metric"], unit="s", samples=samples)
    return Number(label=data["label"], unit=data["unit"], amount=float(data["amount"]), record=record)


def save(entries: Iterable[Entry], platform: Path) -> None:
    """Write a platform's index, whole or not at all."""
    data = [
        {key: value for key, value in vars(entry).items() if key != "platform"}
        | {
            "numbers": [
                {"label": n.label, "unit": n.unit, "amount": n.amount, "metric": n.record.metric}
                | {"samples": n.record.samples}
                for n in entry.numbers
            ]
        }
        for entry in entries
    ]
    text = json.dumps({"version": VERSION, "entries": data}, allow_nan=False, separators=(",", ":"))
    write_atomically(platform / HISTORY / INDEX, f"{text}\n")


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
    for name in sorted(there.keys() - {entry.night for entry in entries}):
        for file in files_of(there[name]):
            try:
                entries.append(entry_of(read_kept(file), name))
            except InvalidResult as error:
                left_out.append(f"left out: {error}")
    return entries, left_out


def files_of(night: Path) -> list[Path]:
    """The results that were kept of a night."""
    return sorted(night.glob(f"*{KEPT}"))


def read_kept(path: Path) -> Result:
    """InvalidResult names the file if it is damaged, or unpacks to more than a result can be."""
    try:
        with gzip.open(path) as file:
            data = file.read(strict_json.MOST_BYTES + 1)
        if len(data) > strict_json.MOST_BYTES:
            raise InvalidResult(path, f"has more than the {strict_json.MOST_BYTES} bytes that are read.")
        return parse(data.decode(), str(path))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InvalidResult(path, f"cannot be read ({strict_json.printable(error)}).") from error


@dataclass(frozen=True, kw_only=True)
class Night:
    """What keep() kept; `folder` is None if every result had been kept before. `left_out`: earlier ones, unreadable."""

    folder: Path | None
    experiments: list[str]
    left_out: list[str]


def keep(platform: Path) -> Night:
    """Copy the results that were not kept before into a new night of this folder's history.

    Nothing that was kept is overwritten. ValueError if the folder has no results, or one that cannot be used.
    """
    texts = {path.stem: _checked(path) for path in sorted(platform.glob("*.json")) if is_result_file(path)}
    if not texts:
        raise ValueError(f"'{platform}': no result files in it")
    refuse_mixed_machines((result for _, result in texts.values()), str(platform))
    with _alone(platform / HISTORY) as history:
        entries, left_out = refreshed(platform)
        known = {(entry.experiment, entry.finished) for entry in entries}
        new = {name: each for name, each in texts.items() if (name, each[1].finished) not in known}
        if not new:
            save(entries, platform)
            return Night(folder=None, experiments=[], left_out=left_out)
        night = max(night_name(result.finished) for _, result in new.values())
        if taken := [*history.glob(f"{night}*")]:
            night += f"-{len(taken) + 1}"
        entries += [entry_of(result, night) for _, result in new.values()]  # before anything is written
        folder = _write(history, {name: text for name, (text, _) in new.items()}, night)
        save(entries, platform)
    return Night(folder=folder, experiments=list(new), left_out=left_out)


def _checked(path: Path) -> tuple[str, Result]:
    """A result's text and itself; InvalidResult if it cannot be used or is a copy from elsewhere."""
    try:
        text = strict_json.read(path)
    except strict_json.Refused as error:
        raise InvalidResult(path, f"{error}.") from error
    result = parse(text, str(path))
    if (result.platform, result.experiment) != (path.resolve().parent.name, path.stem):
        raise InvalidResult(path, f"it is of '{result.experiment}' on '{result.platform}': a copy.")
    return text, result


@contextlib.contextmanager
def _alone(history: Path) -> Iterator[Path]:
    """One process at a time keeps; what a killed one left half done is removed."""
    history.mkdir(exist_ok=True)
    handle = os.open(history, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems lock no folders
            fcntl.flock(handle, fcntl.LOCK_EX)
            for unfinished in history.glob(".*Z*"):
                shutil.rmtree(unfinished, ignore_errors=True)
        yield history
        os.fsync(handle)
    finally:
        os.close(handle)


def _write(history: Path, texts: dict[str, str], name: str) -> Path:
    """Into a folder that nobody reads, which then gets its name in one step."""
    unfinished = Path(tempfile.mkdtemp(dir=history, prefix=f".{name}."))
    try:
        for experiment, text in texts.items():
            write_atomically(unfinished / f"{experiment}{KEPT}", gzip.compress(text.encode(), mtime=0))
        unfinished.chmod(0o755)
        return unfinished.rename(history / name)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
