"""What one calls a machine: '8 x H100 80GB', '2 nodes of 8 x H100 80GB', 'AMD EPYC 9R14, 2 cores (emulated)'."""

import re
from collections import Counter
from collections.abc import Sequence

from scalecard.hardware.machine import Machine, from_facts
from scalecard.records.record import Result

VENDORS = re.compile(r"\b(NVIDIA|GeForce|Tesla|AMD|Instinct|HBM\d\w*)(?!\w)")
# Of a name without its vendor: 'H100' of 'H100 80GB', 'RTX 4090' of 'RTX 4090 Laptop GPU'.
MODEL = re.compile(r"(?:(?:RTX|GTX|TITAN|Quadro)\s)?[^\s-]+")


def nickname(results: Sequence[Result], *, short: bool = False) -> str:
    """Of one platform's results, without vendors and kinds of memory; `short`: by the models of its GPUs alone."""
    machine, nodes = machine_of(results), num_nodes(results)
    shown = [_without_vendor(name, short) for name in gpus(machine)]
    one = " and ".join(f"{count} x {name}" for name, count in Counter(shown).items())
    one = one or f"{machine.cpu}, {machine.cores} cores (emulated)"
    return f"{nodes} nodes of {one}" if nodes > 1 else one


def machine_of(results: Sequence[Result]) -> Machine:
    """All results of a platform are of one."""
    return from_facts(results[0].environment["machine"])


def gpus(machine: Machine) -> list[str]:
    """The names of the GPUs that were used."""
    return machine.gpus[: machine.num_devices]


def num_nodes(results: Sequence[Result]) -> int:
    """On how many nodes the widest of them was measured."""
    return max(len(result.environment["nodes"]) or 1 for result in results)


def _without_vendor(name: str, short: bool) -> str:
    """A slice of a GPU keeps its whole name, which says how large it is."""
    bare = " ".join(VENDORS.sub(" ", name).split())
    model = MODEL.match(bare) if short and " MIG " not in bare else None
    return model.group() if model else bare or name
