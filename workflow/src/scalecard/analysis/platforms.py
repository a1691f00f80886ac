"""Platforms: the results of one, which are drawn, what they are called, and whether two are the same hardware."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from scalecard.analysis import by_key
from scalecard.hardware.machine import Machine, from_facts
from scalecard.records.record import Result

Settings = Mapping[str, Mapping[str, Any]]
NO_SETTINGS: Settings = MappingProxyType({})
MOST = 4  # that are drawn: more lines in a panel, or columns of a table, are not told apart
VENDORS = re.compile(r"\b(NVIDIA|GeForce|Tesla|AMD|Instinct|HBM\d\w*)(?!\w)")
# Of a name without its vendor: 'H100' of 'H100 80GB', 'RTX 4090' of 'RTX 4090 Laptop GPU'.
MODEL = re.compile(r"(?:(?:RTX|GTX|TITAN|Quadro)\s)?[^\s-]+")


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
