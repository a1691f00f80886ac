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
USUAL_DEVICES = {"full": 8, "quick": 2}  # devices of a node that is not known yet, or for which seconds are typical
# Estimated seconds of one: a variant from its proof to its last round, a launch of ranks, a trial of a step that may
# not fit, a compilation, and a search for the learning rate of a proof. An H200 took 11 to 14 s for a launch, and 23 s
# to compile gpt.
UNITS = {"variants": 4.0, "launches": 12.0, "trials": 4.0, "compilations": 45.0, "searches": 15.0}
EPOCH = {"lenet": 0.5, "resnet18": 7.5}  # of all of Fashion-MNIST on one device
HEALTH = "health"  # which gives up no time: what it left out would be thought to be sound
HEALTH_MARGIN = {"full": 2, "quick": 4}  # times what it is estimated to take
WEEK = 7 * 24 * 3600.0
ONLY_ONCE = ("trials", "searches")  # by the first process, for all


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
        done = (name for name in UNITS if first or name not in ONLY_ONCE)
        return self.seconds + sum(UNITS[name] * float(getattr(self, name)) for name in done)

    def __add__(self, other: "Need") -> "Need":
        return Need(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True)
class Setup:
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


def _health(setup: Setup) -> Need:
    """Alone and at once, every pair, collectives, and a load."""
    pairs = setup.devices * (setup.devices - 1)
    own = 15 * setup.devices + 0.5 * setup.len("link_bytes") * pairs + setup["load_seconds"] + 15
    several = len(setup.several)
    return Need(launches=several, variants=3 * setup.len("collective_bytes") * several, seconds=own)


def _async_timing(setup: Setup) -> Need:
    return Need(variants=setup.len("dtypes") + setup.len("sizes") + 2 * len(setup.layouts))


def _copy_cost(setup: Setup) -> Need:
    """The textbook's five steps with gigabytes of pageable memory; host and device; within one; between each pair."""
    ways, sizes, others = setup.len("memory") * setup.len("calls"), setup.len("bytes"), setup.devices - 1
    between = 2 * others * sizes + others * (others - 1)
    return Need(variants=2 * ways * sizes + sizes + between, seconds=75)


def _allreduce(setup: Setup) -> Need:
    within = [layout for layout in setup.several if layout.nodes == 1]
    return Need(
        variants=2 + setup.len("bytes") * (2 * len(within) + len(setup.several)),
        launches=len(setup.several) + 1,
    )


def _dp_scratch(setup: Setup) -> Need:
    """One thread launches for all devices, so an epoch on more of them is not shorter."""
    return Need(seconds=10 + setup.epochs(["lenet"], fixed=1.0))


def _dp_concise(setup: Setup) -> Need:
    return Need(seconds=10 + setup.len("batch_sizes") * setup.len("lrs") * setup.epochs([setup["model"]], fixed=0.3))


def _ddp(setup: Setup) -> Need:
    options = setup.len("buckets_mib") + setup.len("hooks") + 2 * setup.len("accumulation") + 2
    full = sum(layout.ranks == layout.nodes * setup.devices for layout in setup.several)
    return Need(
        variants=setup.len("models") * (2 + 2 * len(setup.several) + options * full),
        launches=len(setup.layouts),
        seconds=15 + setup.epochs(setup["accuracy_models"]),
    )


def _model_parallel(setup: Setup) -> Need:
    return Need(variants=10 + 5 * len(setup.several))


def _pipeline(setup: Setup) -> Need:
    balanced = 6 * setup.len("balanced_sizes") * len(setup.several)
    return Need(variants=10 + 3 * setup.len("split_sizes") + balanced, launches=1)


def _tensor_parallel(setup: Setup) -> Need:
    return Need(variants=2 * setup.len("models") * (1 + 2 * len(setup.several)))


def _hybrid(setup: Setup) -> Need:
    return Need(variants=12 * len(setup.several), launches=len(setup.several))


def _strategies(setup: Setup) -> Need:
    """Of each workload: one device with smaller batches; about six strategies in one process and eight on ranks."""
    need = Need(launches=1)
    for values in setup["workloads"].values():
        smaller = math.log2(values["batch_size"]) + 1
        each = 14 * len(setup.several)
        need += Need(
            variants=1 + smaller + each * setup.len("scaling"),
            launches=2 + 4 * len(setup.several),
            trials=5 + each * (setup.len("scaling") + 4),
            searches=1,
        )
    return need


def _input(setup: Setup) -> Need:
    workers = setup.len("workers") or 6
    each = 4 * (workers + setup.len("prefetch")) + 2 * setup.len("batch_sizes")
    return Need(variants=each * len(setup["workloads"]), searches=len(setup["workloads"]))


def _heterogeneous(setup: Setup) -> Need:
    return Need(variants=2 * setup.len("models") * (2 * (setup.len("shares") + 2) + 6))


def _tuning(setup: Setup) -> Need:
    """Each rung alone and on top of the others, on one device and on all; what compiles, compiles anew for each."""
    loads, factors = len(setup["workloads"]), setup.len("larger_batches")
    ladders = loads * (1 + (setup.devices > 1))
    compiled = 3 * ("compile" in setup["rungs"])
    need = Need(
        variants=2 * ladders * (setup.len("rungs") + setup.len("accumulation")) + 2 * loads * factors,
        launches=ladders,
        trials=2 * loads * factors,
        compilations=ladders * compiled,
        searches=ladders,
    )
    if setup["epochs_of"]:
        epochs = Setup(setup.block, 1).epochs([setup["epochs_of"]])
        need += Need(launches=1, compilations=compiled, seconds=2 * epochs)
    return need


def need(name: str, block: Mapping[str, Any], scale: str, *, devices: int | None, nodes: int) -> Need:
    """Of one process; `devices` of a node, None if it is not known yet."""
    setup = Setup(block, devices or USUAL_DEVICES[scale], nodes)
    if not setup.several and name in NEED_SEVERAL_DEVICES:
        return Need()
    if scale == "full":
        estimate: Callable[[Setup], Need] = globals()[f"_{name}"]
        return estimate(setup)
    typical: dict[str, float] = yaml.safe_load(TYPICAL.read_text())["quick"]
    return Need(seconds=typical[name] * len(setup.layouts) / len(layouts(USUAL_DEVICES["quick"], 1)))


def seconds(name: str, block: Mapping[str, Any], scale: str, *, devices: int | None, nodes: int) -> float:
    """Of all processes of a run of this merged block, at most a week; 0 if there is nothing to measure."""
    found = need(name, block, scale, devices=devices, nodes=nodes)
    if name == HEALTH:  # in one process, and with room, since it must end
        return HEALTH_MARGIN[scale] * found.total()
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
