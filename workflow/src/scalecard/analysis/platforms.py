"""Results by platform: which files are used, what can be computed from them, which platforms are drawn, their names.

The first file's folder is the current platform: a file there that cannot be read is an error. One of another platform
is left out and named, and stops nothing. So is what cannot be computed: the rest is drawn, said and exported without
it, and if it is of the current platform, the run fails in the end.
"""

import os
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from scalecard.analysis import by_key
from scalecard.hardware.machine import Machine, from_facts
from scalecard.records.files import InvalidResult, load, refuse_mixed_machines
from scalecard.records.record import Result
from scalecard.records.strict_json import load_object, printable

T = TypeVar("T")
# What computing raises if a result that the schema accepts lacks what its section needs.
UNFIT = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
Settings = Mapping[str, Mapping[str, Any]]
NO_SETTINGS: Settings = MappingProxyType({})
MOST = 4  # that are drawn: more lines in a panel, or columns of a table, are not told apart
VENDORS = re.compile(r"\b(NVIDIA|GeForce|Tesla|AMD|Instinct|HBM\d\w*)(?!\w)")
# Of a name without its vendor: 'H100' of 'H100 80GB', 'RTX 4090' of 'RTX 4090 Laptop GPU'.
MODEL = re.compile(r"(?:(?:RTX|GTX|TITAN|Quadro)\s)?[^\s-]+")


@dataclass(frozen=True)
class LeftOut:
    """A file by its folder and name, or a part of the report, and the reason; whether it is `ours`, so a failure."""

    what: str
    reason: str
    ours: bool = False

    def __str__(self) -> str:
        return f"left out: {self.what}: {self.reason}"


@dataclass(frozen=True)
class Gathered:
    """The results that are used, the current platform's first, and the files that are not."""

    results: list[Result]
    left_out: list[LeftOut]


def by_reason(left_out: Sequence[LeftOut]) -> list[tuple[str, str]]:
    """(what, reason) pairs: what is wrong with all files of a folder is said once."""
    whats = by_key((each.reason, each.what) for each in left_out)
    return [(", ".join(names), reason) for reason, names in whats.items()]


def gather(paths: Sequence[Path]) -> Gathered:
    """Load these result files, the current platform's first. InvalidResult names one of that platform."""
    here, results, left_out = paths[0].parent, list[Result](), list[LeftOut]()
    for path in [*paths, *_not_given(paths)]:
        try:
            result = _load_from_its_folder(path)
            if path.parent != here:
                _refuse_another_machine(path, result, results)
            results.append(result)
        except InvalidResult as error:
            if path.parent == here:
                raise InvalidResult(path, f"{error.reason} Remove the file; the next run measures it again.") from error
            # Without the folders above, which a published report must not name.
            left_out.append(LeftOut(printable(Path(path.parent.name, path.name)), error.reason))
    refuse_mixed_machines(results, "results")
    return Gathered(results, left_out)


def fit(result: Result, compute: Callable[[], T]) -> T:
    """What is computed from a result; InvalidResult names its file if it lacks what that needs."""
    return computed(file_of(result), "cannot be shown", compute)


def computed(where: str, refusal: str, compute: Callable[[], T]) -> T:
    """What `compute` returns; InvalidResult with the refusal and its reason if results lack what that needs."""
    try:
        return compute()
    except UNFIT as error:
        raise InvalidResult(where, f"{refusal} ({_said(error)}).") from error


def _said(error: Exception) -> str:
    if isinstance(error, InvalidResult):
        return str(error)
    return printable(f"it has no {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}")


def attempt(what: str, compute: Callable[[], T], left_out: list[LeftOut], *, ours: bool = True) -> T | None:
    """What is computed, or None once `left_out` has it with the reason and the line of code that raised it."""
    try:
        return compute()
    except UNFIT as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        left_out.append(LeftOut(what, f"{_said(error)} ({Path(last.filename).name}, line {last.lineno})", ours))
        return None


def each_fit(results: Iterable[Result], compute: Callable[[Result], T], *, here: str) -> tuple[list[T], list[LeftOut]]:
    """What is computed from each result, and which had to be left out; `here` is the current platform."""
    left_out = list[LeftOut]()
    made = [attempt(file_of(r), partial(compute, r), left_out, ours=r.platform == here) for r in results]
    return [found for found in made if found is not None], left_out


def file_of(result: Result) -> str:
    """The file of a result by its folder and name."""
    return f"{result.platform}/{result.experiment}.json"


def _not_given(paths: Sequence[Path]) -> list[Path]:
    """What has the name of a result beside these and cannot be an input of a rule, such as a FIFO or a broken link."""
    names, places = {path.name for path in paths}, {path.parent.parent for path in paths}
    beside = sorted(folder / name for place in places for folder in place.iterdir() for name in names)
    there = [path for path in beside if os.path.lexists(path)]  # glob() passes over a broken link
    return [path for path in there if path not in set(paths) and not (path.is_file() and os.access(path, os.R_OK))]


def _load_from_its_folder(path: Path) -> Result:
    """InvalidResult unless folder, name and fingerprint are those that the file itself states."""
    result, folder = load(path), path.resolve().parent.name
    facts = result.environment["machine"]
    if result.platform != folder:
        raise _disagreeing(path, f"it is in the folder '{folder}', but of platform '{result.platform}': a copy")
    if result.experiment != path.stem:
        raise _disagreeing(path, f"it is of the experiment '{result.experiment}': a copy")
    if result.environment["fingerprint"] != from_facts(facts).fingerprint:
        raise _disagreeing(path, "$.environment.fingerprint is not that of $.environment.machine")
    return result


def _refuse_another_machine(path: Path, result: Result, known: Sequence[Result]) -> None:
    """All files of a folder are of the machine that its machine.json describes or, without one, of the first."""
    ours: str | None
    try:
        ours = from_facts(load_object(path.with_name("machine.json"))).fingerprint
    except (ValueError, TypeError):  # there is none, or it is damaged: the results describe the machine too
        ours = next((r.environment["fingerprint"] for r in known if r.platform == result.platform), None)
    if ours not in (None, result.environment["fingerprint"]):
        found = result.environment["fingerprint"]
        raise _disagreeing(path, f"$.environment.fingerprint is {found}, but that of the folder's machine is {ours}")


def _disagreeing(path: Path, what: str) -> InvalidResult:
    return InvalidResult(path, f"{printable(what)}.")


@dataclass(frozen=True, eq=False)
class PlatformResults:
    """The results of one platform, by experiment, from which every answer is computed; any of them may be missing.

    `settings` are the values of config.yaml that an answer needs, by the answer's name.
    """

    results: Mapping[str, Result]
    settings: Settings = field(default_factory=dict)

    def of(self, experiment: str) -> Result | None:
        """The experiment's result; None if it was not measured."""
        return self.results.get(experiment)

    @property
    def platform(self) -> str:
        return next(iter(self.results.values())).platform

    @property
    def emulated(self) -> bool:
        """Whether CPU workers and ranks stood in for GPUs: then nothing is advised."""
        return any(result.emulated for result in self.results.values())


def current(results: Sequence[Result], settings: Settings = NO_SETTINGS) -> PlatformResults:
    """The results of the first one's platform."""
    return PlatformResults({r.experiment: r for r in results if r.platform == results[0].platform}, settings)


def selection(results: Sequence[Result], show: Sequence[str] | None = None) -> list[str]:
    """At most four platforms: the first result's, then those of `show` in its order.

    Without it, the latest ones of the first one's kind: beside emulated devices, GPUs have no case in common.
    """
    finished = by_key((result.platform, datetime.fromisoformat(result.finished)) for result in results)
    here, latest = results[0].platform, {platform: max(moments) for platform, moments in finished.items()}
    alike = {result.platform for result in results if result.emulated == results[0].emulated}
    others = sorted(alike, key=lambda platform: latest[platform], reverse=True) if show is None else show
    chosen = [platform for platform in dict.fromkeys(others) if platform in latest and platform != here]
    return [here, *chosen][:MOST]


def platform_label(result: Result) -> str:
    """As figures name it."""
    return f"{result.platform} (emulated)" if result.emulated else result.platform


def device_name(result: Result) -> str:
    """The device that the result was measured on, e.g. 'NVIDIA H200'."""
    return from_facts(result.environment["machine"]).device_name


def nickname(results: Sequence[Result], *, short: bool = False) -> str:
    """What one calls a machine: '8 x H100 80GB', '2 nodes of 8 x H100 80GB', 'AMD EPYC 9R14, 2 cores (emulated)'.

    Of one platform's results, without vendors and kinds of memory; `short`: by the models of its GPUs alone.
    """
    machine, nodes = from_facts(results[0].environment["machine"]), _num_nodes(results)
    counts = Counter(_without_vendor(name, short) for name in _gpus(machine))
    gpus = " and ".join(f"{count} x {name}" for name, count in counts.items())
    one = gpus or f"{machine.cpu}, {machine.cores} cores (emulated)"
    return f"{nodes} nodes of {one}" if nodes > 1 else one


def same_hardware(old: Sequence[Result], new: Sequence[Result]) -> bool:
    """Whether a difference is a change: both have the same GPUs, or without any the same CPU, on as many nodes.

    Anything else, such as a driver, is a change. Between unlike hardware a difference is no news, and what counts is
    how many times as fast the one is.
    """
    return _hardware(old) == _hardware(new)


def nicknames(old: Sequence[Result], new: Sequence[Result]) -> tuple[str, str]:
    """Both in a few words, as '4 x A100' and '8 x H100'; in more words if those do not tell the two apart."""
    short = nickname(old, short=True), nickname(new, short=True)
    return short if short[0] != short[1] else (nickname(old), nickname(new))


def _hardware(results: Sequence[Result]) -> tuple[object, ...]:
    machine = from_facts(results[0].environment["machine"])  # all results of a platform are of one
    return _num_nodes(results), *(sorted(_gpus(machine)) or (machine.cpu, machine.cores, machine.num_devices))


def _gpus(machine: Machine) -> list[str]:
    """The names of those that were used."""
    return machine.gpus[: machine.num_devices]


def _num_nodes(results: Sequence[Result]) -> int:
    """On how many nodes the widest of them was measured."""
    return max(len(result.environment["nodes"]) or 1 for result in results)


def _without_vendor(name: str, short: bool) -> str:
    """A slice of a GPU keeps its whole name, which says how large it is."""
    bare = " ".join(VENDORS.sub(" ", name).split())
    model = MODEL.match(bare) if short and " MIG " not in bare else None
    return model.group() if model else bare or name
