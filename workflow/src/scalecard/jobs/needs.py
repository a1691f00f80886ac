"""How long an experiment takes to measure all of its cases, estimated from its block and the devices.

Of the full scale it is told how often each thing is done that takes time (UNITS), on GPUs and in one process. Of the
quick scale it is known how long each experiment took (typical_seconds.yaml). What is estimated here decides how a
budget is shared, and by how much `max_seconds` shrinks in it; docs/method.md shows it for three machines.

The headline of an experiment is what it measures first: of launches on 1, 2, 4 ... N ranks the first and the last, of a
sweep of sizes its ends and its middle. What is timed in the same rounds belongs to it as a whole.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from scalecard.distributed import Layout, layouts
from scalecard.measuring.stopping_rule import COARSE, TRIALS_SHARE
from scalecard.records.statistics import FEWEST

TYPICAL = Path(__file__).with_name("typical_seconds.yaml")
NEED_SEVERAL_DEVICES = ("allreduce", "pipeline", "hybrid")  # or they measure nothing
USUAL_DEVICES = {"full": 8, "quick": 2}  # devices of a node that is not known yet, or for which seconds are typical
# Estimated seconds of one: a copy, a product or an all-reduce of one size, or a part of a model alone, and a whole step
# of training, from their proof to their last round; a launch of ranks, a trial of a step that may not fit, a
# compilation, and a search for the learning rate of a proof. An H200 took 2.1 s for a product, 5 s for a step that was
# timed for 2.3 s, about 2 s for a trial, 11 to 14 s for a launch, and 23 s to compile gpt; a ResNet-50 is assumed to
# take twice as long.
UNITS = {"points": 2.0, "variants": 4.0, "launches": 12.0, "trials": 2.0, "compilations": 35.0, "searches": 15.0}
WITH_FEWEST_ROUNDS = UNITS | {"points": 1.5, "variants": 3.0}
# Of all of Fashion-MNIST on one device; with the textbook's loader it is assumed.
EPOCH = {"lenet": 0.5, "lenet as printed": 3.0, "resnet18": 7.5, "resnet18 as printed": 10.0}
RUNS = 5  # of the textbook's ResNet-18 and beside it, one change at a time
HEALTH = "health"  # which gives up no time: what it left out would be thought to be sound
HEALTH_MARGIN = {"full": 2, "quick": 4}  # times what it is estimated to take
WEEK = 7 * 24 * 3600.0
BLOCKS = {"resnet50": 18, "resnet26_quarter": 10}  # as they are cut
CHECKPOINTS = 6  # ways to save and load one, with the steps beside it
ONLY_ONCE = ("trials", "searches")  # by the first process, for all


@dataclass(frozen=True)
class Need:
    """How often each thing is done, and the seconds that the rest takes."""

    points: float = 0
    variants: float = 0
    launches: float = 0
    trials: float = 0
    compilations: float = 0
    searches: float = 0
    seconds: float = 0

    def total(self, units: Mapping[str, float] = UNITS, *, first: bool = True) -> float:
        """Seconds of the first process of a run, or of a later one."""
        done = (name for name in units if first or name not in ONLY_ONCE)
        return self.seconds + sum(units[name] * float(getattr(self, name)) for name in done)

    def __add__(self, other: "Need") -> "Need":
        return Need(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True)
class Setup:
    """An experiment's merged block, and the devices of a node and nodes on which it is measured; its headline alone?"""

    block: Mapping[str, Any]
    devices: int
    nodes: int = 1
    headline: bool = False

    def __getitem__(self, key: str) -> Any:
        return self.block[key]

    def len(self, key: str) -> int:
        return len(self.block[key] or ())

    def sweep(self, key: str) -> int:
        """Of how many sizes."""
        return min(self.len(key), COARSE) if self.headline else self.len(key)

    @property
    def layouts(self) -> Sequence[Layout]:
        """Of 1, 2, 4 ... N ranks, and over nodes."""
        return layouts(self.devices, self.nodes)

    @property
    def several(self) -> Sequence[Layout]:
        return [layout for layout in self.layouts if layout.ranks > 1]

    @property
    def within_a_node(self) -> Sequence[Layout]:
        return [layout for layout in self.several if layout.nodes == 1]

    @property
    def launch_layouts(self) -> Sequence[Layout]:
        """Of several ranks, where a launch measures one layout: for the headline all ranks alone."""
        return self.several[-1:] if self.headline else self.several

    @property
    def images(self) -> float:
        """Trained on in an epoch, over all that there are."""
        return float(self.block.get("train_images") or 60000) / 60000

    def epochs(self, models: Sequence[str], over: Sequence[Layout], *, fixed: float) -> float:
        """Seconds of the block's epochs on each layout; on every one the `fixed` share of an epoch's work stays."""
        shares = sum(fixed + (1 - fixed) / layout.ranks for layout in over)
        return float(
            self["epochs"] * self.images * shares * sum(EPOCH.get(model, EPOCH["resnet18"]) for model in models)
        )


def _health(setup: Setup) -> Need:
    """Alone and at once, every pair, collectives, and a load; all of it is its headline."""
    pairs = setup.devices * (setup.devices - 1)
    own = 15 * setup.devices + 0.5 * setup.len("link_bytes") * pairs + setup["load_seconds"] + 15
    several = len(setup.several)
    return Need(launches=several, variants=3 * setup.len("collective_bytes") * several, seconds=own)


def _async_timing(setup: Setup) -> Need:
    """Serial and concurrent on several devices."""
    return Need(points=setup.len("dtypes") + setup.len("sizes") + 2 * len(setup.layouts))


def _copy_cost(setup: Setup) -> Need:
    """The textbook's five steps with gigabytes of pageable memory; host and device; within one; between each pair."""
    ways, sizes = setup.len("memory") * setup.len("calls"), setup.sweep("bytes")
    pairs = setup.devices * (setup.devices - 1)
    swept = min(pairs, 2) * (sizes - 1)
    return Need(points=2 * ways * sizes + sizes + pairs + swept, seconds=75)


def _allreduce(setup: Setup) -> Need:
    """The library's, then two of ours beside it."""
    ours = [layout for layout in setup.launch_layouts if layout.nodes == 1]
    points = 2 + setup.sweep("bytes") * (len(setup.launch_layouts) + 2 * len(ours))
    return Need(points=points, launches=len(setup.launch_layouts))


def _dp_scratch(setup: Setup) -> Need:
    """One thread launches for all devices, so an epoch on more of them is not shorter. Then those as printed."""
    need = Need(seconds=10 + setup.epochs(["lenet"], setup.layouts, fixed=1.0))
    printed = [] if setup.headline else [num for num in setup["as_printed"] if num <= setup.devices]
    of_each = sum(EPOCH[way] for way in ("lenet as printed", "lenet", "lenet", "lenet"))
    return need + Need(seconds=(FEWEST + 1) * of_each * len(printed) * setup.images)


def _dp_concise(setup: Setup) -> Need:
    """Batch sizes and learning rates that grow together, as the textbook's pair does, before the rest of the grid."""
    sizes, lrs = setup.len("batch_sizes"), setup.len("lrs")
    settings = min(sizes, lrs) if setup.headline else sizes * lrs
    need = Need(seconds=10 + settings * setup.epochs([setup["model"]], setup.layouts, fixed=0.3))
    if setup.headline:
        return need
    grown = setup.epochs([setup["model"]], setup.layouts[2:], fixed=0.3)
    epochs = RUNS * (setup["run_epochs"] + 1) if setup["run_epochs"] else 0  # each with one that warms up
    printed = (FEWEST + 1) * len([num for num in setup["as_printed"] if num <= setup.devices])
    own = epochs * EPOCH["resnet18"] + printed * (EPOCH["resnet18 as printed"] + EPOCH["resnet18"])
    return need + Need(seconds=grown + setup.images * own)


def _ddp(setup: Setup) -> Need:
    """Options are for as many ranks as there are; on several of a node, also what one process does with them."""
    options = setup.len("buckets_mib") + setup.len("hooks") + 2 * setup.len("accumulation") + 2
    full = sum(layout.ranks == layout.nodes * setup.devices for layout in setup.launch_layouts)
    over = [setup.layouts[0], *setup.launch_layouts]
    in_one_process = 0 if setup.headline else 3 * len(setup.within_a_node)
    return Need(
        variants=setup.len("models") * (2 + 2 * len(setup.launch_layouts) + options * full + in_one_process),
        launches=len(over),
        seconds=15 + setup.epochs(setup["accuracy_models"], over, fixed=0.1),
    )


def _model_parallel(setup: Setup) -> Need:
    """Each block; a step over the textbook's cut and balanced ones, and their stages; all in the same rounds."""
    cuts = [2, *(layout.ranks for layout in setup.within_a_node)] if setup.several else []
    return Need(points=BLOCKS[setup["model"]] + sum(cuts), variants=3 + len(cuts))


def _pipeline(setup: Setup) -> Need:
    """Each block; on two devices every split size, also of the library's, which is the headline; then balanced cuts."""
    sizes, balanced = setup.len("split_sizes"), setup.len("balanced_sizes")
    points = BLOCKS[setup["model"]] + 12 * balanced
    need = Need(points=points, variants=2 + 5 * sizes + 4 * balanced, launches=1)
    for layout in () if setup.headline else setup.within_a_node[1:]:
        need += Need(points=3 * layout.ranks * balanced, variants=2 * balanced)
    return need


def _tensor_parallel(setup: Setup) -> Need:
    return Need(variants=setup.len("models") * (1 + 3 * len(setup.within_a_node)))


def _hybrid(setup: Setup) -> Need:
    """A rank drives two devices; one alone has nothing to average."""
    several = [layout for layout in setup.launch_layouts if layout.ranks > 2]
    return Need(variants=1 + 2 * len(several), launches=1 + len(several))


def _strategies(setup: Setup) -> Need:
    """Each workload on one device, with smaller batches; then all ways on ranks and, not of the headline, in one
    process, with stages alone, the largest batches and checkpoints; by other recipes on one device and on all ranks.
    """
    need, scalings = Need(launches=1), setup.len("scaling")
    for name, values in setup["workloads"].items():
        divisible = "file" in values or not name.startswith("resnet")  # by layers
        own = {"precision": "float32", "checkpointing": "none", **values.get("recipe", {})}
        widest = "bf16" if "bf16" in setup["precision"] else "float32"  # which auto is, on GPUs and on a CPU
        precision = widest if own["precision"] == "auto" else own["precision"]
        wanted = product(setup["precision"], setup["checkpointing"])
        others = sum(one != (precision, own["checkpointing"]) for one in wanted)
        need += Need(variants=1, launches=1, searches=1) + _parts(math.log2(values["batch_size"]) + 2)
        if not setup.headline:
            need += _largest(1) + Need(variants=CHECKPOINTS, trials=2 * CHECKPOINTS + 1, launches=1)
        for layout in setup.launch_layouts:
            whole = _on_ranks(layout.ranks, divisible)
            need += _whole(scalings * whole) + _parts(scalings * 2) + Need(launches=1)
            if not setup.headline:
                need += _largest(whole)
        for layout in () if setup.headline else setup.within_a_node:
            need += _whole(scalings * 4) + _parts(scalings * 5 * layout.ranks) + Need(launches=1) + _largest(4)
        if own.get("compile"):
            need += Need(compilations=1 + len(setup.launch_layouts))
        for layout in () if setup.headline or not others else [setup.layouts[0], *setup.within_a_node[-1:]]:
            whole = others * _on_ranks(layout.ranks, divisible)
            need += _whole(whole) + _largest(whole) + Need(launches=2 * others - 1)
    return need


def _on_ranks(ranks: int, divisible: bool) -> int:
    """Strategies of so many ranks; tensor parallelism, from four ranks on also of replicas, needs layers to divide."""
    if ranks == 1:
        return 1
    return (9 + 2 * divisible) if ranks >= 4 else (8 + divisible)


def _whole(strategies: float) -> Need:
    """Steps: tried as they are timed and as they are proven."""
    return Need(variants=strategies, trials=2 * strategies)


def _parts(count: float) -> Need:
    return Need(points=count, trials=count)


def _largest(strategies: float) -> Need:
    return Need(trials=4 * strategies, launches=1)


def _input(setup: Setup) -> Need:
    each = (setup.len("workers") or 6) + setup.len("prefetch") + setup.len("batch_sizes") + 8
    return Need(variants=each * len(setup["workloads"]), searches=len(setup["workloads"]))


def _heterogeneous(setup: Setup) -> Need:
    """A GPU beside the host's cores, whose steps take longer."""
    return Need(variants=setup.len("models") * (2 * (setup.len("shares") + 2) + 7), seconds=60)


def _tuning(setup: Setup) -> Need:
    """Each rung alone and on top of the others; what compiles, compiles anew for each.

    The headline is one device, without larger batches and epochs, which come last.
    """
    loads, factors = len(setup["workloads"]), 0 if setup.headline else setup.len("larger_batches")
    ladders = loads * (1 + (setup.devices > 1 and not setup.headline))
    compiled = 3 * ("compile" in setup["rungs"])
    further = 0 if setup.headline else setup.len("accumulation")
    recipes = [values.get("recipe", {}) for values in setup["workloads"].values()]
    in_bf16 = sum(one.get("precision") in ("bf16", "auto") for one in recipes)  # from the beginning, on GPUs
    needless = ladders // loads * in_bf16 * len({"bf16", "tf32"} & set(setup["rungs"]))
    usual, larger = 2 * (ladders * (setup.len("rungs") + further) - needless), 2 * loads * factors
    tried = UNITS["trials"] * 2 * usual + UNITS["compilations"] * ladders * compiled
    rounds = WITH_FEWEST_ROUNDS["variants"] * usual
    need = _whole(usual) + Need(
        seconds=max(0.0, tried / TRIALS_SHARE - tried - rounds),  # or what is tried would not end within its share
        variants=larger,
        launches=ladders,
        trials=3 * larger,
        compilations=ladders * compiled,
        searches=ladders,
    )
    if setup["epochs_of"] and not setup.headline:
        epochs = setup.epochs([setup["epochs_of"]], setup.layouts[:1], fixed=0.1)
        need += Need(launches=1, compilations=compiled, seconds=2 * epochs)
    return need


def need(
    name: str, block: Mapping[str, Any], scale: str, *, devices: int | None, nodes: int, headline: bool = False
) -> Need:
    """Of one process, all of it or its `headline`; `devices` of a node, None if it is not known yet."""
    setup = Setup(block, devices or USUAL_DEVICES[scale], nodes, headline)
    if not setup.several and name in NEED_SEVERAL_DEVICES:
        return Need()
    if scale == "full":
        estimate: Callable[[Setup], Need] = globals()[f"_{name}"]
        return estimate(setup)
    typical: dict[str, float] = yaml.safe_load(TYPICAL.read_text())["quick"]
    return Need(seconds=typical[name] * len(setup.layouts) / len(layouts(USUAL_DEVICES["quick"], 1)))


def seconds(
    name: str, block: Mapping[str, Any], scale: str, *, devices: int | None, nodes: int, headline: bool = False
) -> float:
    """Of all processes of a run of this merged block, at most a week; 0 if there is nothing to measure.

    The `headline` is measured in the first process, with the fewest rounds if time is short.
    """
    found = need(name, block, scale, devices=devices, nodes=nodes, headline=headline)
    if name == HEALTH:  # in one process, and with room to end
        return found.total() * (HEALTH_MARGIN[scale] if headline else 1)
    if headline:
        return min(WEEK, found.total(WITH_FEWEST_ROUNDS))
    later: int = block["measure"]["processes"] - 1
    return min(WEEK, found.total() + later * found.total(first=False))


def table(blocks: Mapping[str, Mapping[str, Any]], devices: int) -> str:
    """What each experiment of these merged blocks does on so many GPUs, and its minutes in one process; Markdown."""
    found = {name: need(name, block, "full", devices=devices, nodes=1) for name, block in blocks.items()}
    first = {
        name: seconds(name, block, "full", devices=devices, nodes=1, headline=True) for name, block in blocks.items()
    }
    found["in all"], first["in all"] = sum(found.values(), Need()), sum(first.values())
    rows = [["", *UNITS, "minutes", "headline"], ["---", *["---:"] * (len(UNITS) + 2)]]
    for name, one in found.items():
        minutes = one.total() / 60, first[name] / 60
        rows.append([name, *(f"{getattr(one, unit):.0f}" for unit in UNITS), *(f"{each:.1f}" for each in minutes)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
