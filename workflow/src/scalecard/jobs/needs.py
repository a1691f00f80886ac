"""How long an experiment takes to measure all of its cases, estimated from its block and the devices.

Of the full scale it is told how often each thing is done that takes time (UNITS), on GPUs and in one process. Of the
quick scale it is known how long each experiment took (typical_seconds.yaml). What is estimated here decides how a
budget is shared, and by how much `max_seconds` shrinks in it; docs/method.md shows it for three machines.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from scalecard.distributed.layout import Layout, layouts

TYPICAL = Path(__file__).with_name("typical_seconds.yaml")
NEED_SEVERAL_DEVICES = ("allreduce", "pipeline", "hybrid")  # or they measure nothing
USUAL = {"full": 8, "quick": 2}  # devices of a node that is not known yet, or for which seconds are typical
# Seconds that one takes on an H200, on average: a variant from its proof to its last round, a launch of ranks, a trial
# of a step that may not fit, a compilation, and a search for the learning rate of a proof.
UNITS = {"variants": 4.0, "launches": 12.0, "trials": 4.0, "compilations": 45.0, "searches": 15.0}
EPOCH = {"lenet": 0.5, "resnet18": 7.5}  # of all of Fashion-MNIST on one device
HEALTH = "health"  # which gives up no time: what it left out would be thought to be sound
ROOM = {"full": 2, "quick": 4}  # times what health is estimated to take
WEEK = 7 * 24 * 3600.0
FIRST_ALONE = ("trials", "searches")  # what the first process finds out for all


@dataclass(frozen=True)
class Need:
    """How often each thing is done, and the seconds that the rest takes."""

    variants: float = 0
    launches: float = 0
    trials: float = 0
    compilations: float = 0
    searches: float = 0
    seconds: float = 0

    def total(self, *, first: bool = True) -> float:
        """Seconds of the first process of a run, or of a later one."""
        done = (name for name in UNITS if first or name not in FIRST_ALONE)
        return self.seconds + sum(UNITS[name] * float(getattr(self, name)) for name in done)

    def __add__(self, other: "Need") -> "Need":
        return Need(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True)
class On:
    """An experiment's merged block, and the devices of a node and nodes on which it is measured."""

    block: Mapping[str, Any]
    devices: int
    nodes: int = 1

    def __getitem__(self, key: str) -> Any:
        return self.block[key]

    def len(self, key: str) -> int:
        return len(self.block[key] or ())

    @property
    def layouts(self) -> Sequence[Layout]:
        """Of 1, 2, 4 ... N ranks, and over nodes."""
        return layouts(self.devices, self.nodes)

    @property
    def several(self) -> Sequence[Layout]:
        return [layout for layout in self.layouts if layout.ranks > 1]

    def epochs(self, models: Sequence[str], *, fixed: float = 0.1) -> float:
        """Seconds of the block's epochs on each layout; on every one the `fixed` share of an epoch's work stays."""
        images = (self.block.get("train_images") or 60000) / 60000
        shares = sum(fixed + (1 - fixed) / layout.ranks for layout in self.layouts)
        return float(self["epochs"] * images * shares * sum(EPOCH.get(model, EPOCH["resnet18"]) for model in models))


def _health(on: On) -> Need:
    """Alone and at once, every pair, collectives, and a load."""
    pairs = on.devices * (on.devices - 1)
    own = 15 * on.devices + 0.5 * on.len("link_bytes") * pairs + on["load_seconds"] + 15
    return Need(launches=len(on.several), variants=3 * on.len("collective_bytes") * len(on.several), seconds=own)


def _async_timing(on: On) -> Need:
    return Need(variants=on.len("dtypes") + on.len("sizes") + 2 * len(on.layouts))


def _copy_cost(on: On) -> Need:
    """The textbook's five steps with gigabytes of pageable memory; host and device; within one; between each pair."""
    ways, sizes, others = on.len("memory") * on.len("calls"), on.len("bytes"), on.devices - 1
    between = 2 * others * sizes + others * (others - 1)
    return Need(variants=2 * ways * sizes + sizes + between, seconds=75)


def _allreduce(on: On) -> Need:
    within = [layout for layout in on.several if layout.nodes == 1]
    return Need(
        variants=2 + on.len("bytes") * (2 * len(within) + len(on.several)),
        launches=len(on.several) + 1,
    )


def _dp_scratch(on: On) -> Need:
    """One thread launches for all devices, so an epoch on more of them is not shorter."""
    return Need(seconds=10 + on.epochs(["lenet"], fixed=1.0))


def _dp_concise(on: On) -> Need:
    return Need(seconds=10 + on.len("batch_sizes") * on.len("lrs") * on.epochs([on["model"]], fixed=0.3))


def _ddp(on: On) -> Need:
    options = on.len("buckets_mib") + on.len("hooks") + 2 * on.len("accumulation") + 2
    full = sum(layout.ranks == layout.nodes * on.devices for layout in on.several)
    return Need(
        variants=on.len("models") * (2 + 2 * len(on.several) + options * full),
        launches=len(on.layouts),
        seconds=15 + on.epochs(on["accuracy_models"]),
    )


def _model_parallel(on: On) -> Need:
    return Need(variants=10 + 5 * len(on.several))


def _pipeline(on: On) -> Need:
    balanced = 6 * on.len("balanced_sizes") * len(on.several)
    return Need(variants=10 + 3 * on.len("split_sizes") + balanced, launches=1)


def _tensor_parallel(on: On) -> Need:
    return Need(variants=2 * on.len("models") * (1 + 2 * len(on.several)))


def _hybrid(on: On) -> Need:
    return Need(variants=12 * len(on.several), launches=len(on.several))


def _strategies(on: On) -> Need:
    """Of each workload: one device with smaller batches; about six strategies in one process and eight on ranks."""
    need = Need(launches=1)
    for values in on["workloads"].values():
        smaller = math.log2(values["batch_size"]) + 1
        each = 14 * len(on.several)
        need += Need(
            variants=1 + smaller + each * on.len("scaling"),
            launches=2 + 4 * len(on.several),
            trials=5 + each * (on.len("scaling") + 4),
            searches=1,
        )
    return need


def _input(on: On) -> Need:
    workers = on.len("workers") or 6
    each = 4 * (workers + on.len("prefetch")) + 2 * on.len("batch_sizes")
    return Need(variants=each * len(on["workloads"]), searches=len(on["workloads"]))


def _heterogeneous(on: On) -> Need:
    return Need(variants=2 * on.len("models") * (2 * (on.len("shares") + 2) + 6))


def _tuning(on: On) -> Need:
    """Each rung alone and on top of the others, on one device and on all; what compiles, compiles anew for each."""
    rungs, factors, places = on.len("rungs"), on.len("larger_batches"), 1 + (on.devices > 1)
    compiled = 3 * ("compile" in on["rungs"])
    each = Need(variants=2 * rungs + 2 * on.len("accumulation"), launches=1, compilations=compiled, searches=1)
    larger = Need(variants=2 * factors, trials=2 * factors)
    need = Need()
    for _ in on["workloads"]:
        need += larger
        for _ in range(places):
            need += each
    if on["epochs_of"]:
        need += Need(launches=1, compilations=compiled, seconds=2 * On(on.block, 1).epochs([on["epochs_of"]]))
    return need


NEEDS: Mapping[str, Callable[[On], Need]] = {
    "health": _health,
    "async_timing": _async_timing,
    "copy_cost": _copy_cost,
    "allreduce": _allreduce,
    "dp_scratch": _dp_scratch,
    "dp_concise": _dp_concise,
    "ddp": _ddp,
    "model_parallel": _model_parallel,
    "pipeline": _pipeline,
    "tensor_parallel": _tensor_parallel,
    "hybrid": _hybrid,
    "strategies": _strategies,
    "input": _input,
    "heterogeneous": _heterogeneous,
    "tuning": _tuning,
}


def need(name: str, block: Mapping[str, Any], scale: str, *, devices: int | None, nodes: int) -> Need:
    """Of one process; `devices` of a node, None if it is not known yet."""
    on = On(block, devices or USUAL[scale], nodes)
    if not on.several and name in NEED_SEVERAL_DEVICES:
        return Need()
    if scale == "full":
        return NEEDS[name](on)
    typical: dict[str, float] = yaml.safe_load(TYPICAL.read_text())["quick"]
    return Need(seconds=typical[name] * len(on.layouts) / len(layouts(USUAL["quick"], 1)))


def seconds(name: str, block: Mapping[str, Any], scale: str, *, devices: int | None, nodes: int) -> float:
    """Of all processes of a run of this merged block, at most a week; 0 if there is nothing to measure."""
    found = need(name, block, scale, devices=devices, nodes=nodes)
    if name == HEALTH:  # in one process, and with room, since it must end
        return ROOM[scale] * found.total()
    later: int = block["measure"]["processes"] - 1
    return min(WEEK, found.total() + later * found.total(first=False))


def table(blocks: Mapping[str, Mapping[str, Any]], devices: int) -> str:
    """What each experiment of these merged blocks does on so many GPUs, and its minutes in one process; Markdown."""
    found = {name: need(name, block, "full", devices=devices, nodes=1) for name, block in blocks.items()}
    rows = [["", *UNITS, "minutes"], ["---", *["---:"] * (len(UNITS) + 1)]]
    for name, one in found.items():
        rows.append([name, *(f"{getattr(one, unit):.0f}" for unit in UNITS), f"{one.total() / 60:.1f}"])
    whole = sum(found.values(), Need())
    rows.append(["in all", *(f"{getattr(whole, unit):.0f}" for unit in UNITS), f"{whole.total() / 60:.0f}"])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
