"""A workload as experiments train it: its file, the values from config.yaml, a batch size, and the precision."""

import copy
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from types import ModuleType
from typing import Any, Self

import torch
from torch import Tensor, nn

from scalecard.hardware.failures import first_that_fits
from scalecard.workloads import nested, reference
from scalecard.workloads.compiled import compile_blocks
from scalecard.workloads.meta import META, initialise, is_on_meta, materialised, put_on_meta
from scalecard.workloads.modules import BATCH_NORM, accepted, layers_of, loaded, opened, proven_mode
from scalecard.workloads.nested import NUM_BATCHES, Tree, leaves, mapped, seed_of, share
from scalecard.workloads.recipe import (
    TEXTBOOKS,
    OptimizerSettings,
    Precision,
    Recipe,
    autocast_forward,
    change_forward,
    checkpointed,
    in_layout,
    under_autocast,
)

UNITS = ("samples", "tokens")
HOST = torch.device("cpu")
LENGTHS = 256  # samples of unequal length whose mean is taken


@dataclass(frozen=True)
class Workload:
    """What is trained: `file`, or the built-in workload of this name, with `values` (JSON) for its functions.

    With `exact`, in float64, without dropout and with batch normalisation in eval mode: what equality is proven on.
    Without, as it is timed; a model that draws random numbers is then proven in eval mode as well (`frozen`). One that
    is `inexact` cannot compute in float64. If it is `no_mean`, its loss is no mean over samples: that of shares is
    another. `part` is which of how many equal shares of a batch it has: a rank's. `each` is how many samples a device
    holds, as far as is known; 0: any. With `device_only`, the host does not compute what a device cannot hold.

    If it `varies`, batches have unequal lengths. A step takes that of its `turn`, and each of so many `shares` its own.
    """

    name: str
    file: str
    values: str
    batch_size: int
    seed: int
    lr: float = 0.0
    each: int = 0
    exact: bool = False
    frozen: bool = False
    inexact: bool = False
    no_mean: bool = False
    part: tuple[int, int] = (0, 1)
    device_only: bool = False
    varies: bool = False
    turn: int = 0
    shares: int = 1
    recipe: Recipe = TEXTBOOKS

    @property
    def optimizer_settings(self) -> OptimizerSettings:
        """How a step changes the parameters."""
        own = self.module.optimizer if self.recipe.optimizer == "own" else None
        return OptimizerSettings(self.lr, self.recipe.optimizer, own, self.recipe.clip, self.may_be_unused)

    @property
    def in_bf16(self) -> bool:
        """Whether products are computed in bfloat16."""
        return self.recipe.precision == "bf16" and not self.exact

    def micro_batch_size(self, samples: int) -> int:
        """Samples that a device with so many of them forwards at a time."""
        return -(-samples // self.recipe.accumulate)

    def micro_batch_sizes(self, *shares: int) -> tuple[int, ...]:
        """Samples of each of the micro-batches of devices with so many of them."""
        return tuple(piece for share in shares for piece in nested.sizes(share, self.micro_batch_size(share)))

    @property
    def recomputes(self) -> bool:
        """Whether forwards run again in the backward."""
        return self.recipe.checkpointing != "none"

    def with_precision(self, precision: Precision) -> Self:
        """The same, whatever the precision of its recipe."""
        return replace(self, recipe=replace(self.recipe, precision=precision))

    @property
    def recipe_axes(self) -> Mapping[str, str]:
        """What a case says of the recipe; float32, and that nothing is recomputed, go without saying."""
        recomputing = {"checkpointing": self.recipe.checkpointing} if self.recomputes else {}
        return {**({"precision": "bf16"} if self.in_bf16 else {}), **recomputing}

    @property
    def as_reference(self) -> Self:
        """As the plain loop trains it: it enters autocast itself, and neither recomputes nor compiles anything.

        Its images lie as the recipe says: roundings depend on it, which batch normalisation of few values magnifies.
        """
        return replace(self, recipe=Recipe(self.recipe.optimizer, channels_last=self.recipe.channels_last))

    @property
    def uncompiled(self) -> Self:
        """The same, whose blocks run as they are written."""
        return replace(self, recipe=replace(self.recipe, compile=False))

    @property
    def flop_counts(self) -> list[str]:
        """The operations that are counted of a step, by the names of counting.py."""
        recipe = {"float32": self.in_bf16, "recomputed": self.recomputes, "channels-last": self.recipe.channels_last}
        return ["FLOPs", *(f"{kind} FLOPs" for kind, counted in recipe.items() if counted)]

    @property
    def given(self) -> dict[str, Any]:
        """The values for the workload's functions."""
        values: dict[str, Any] = json.loads(self.values)
        return values

    @property
    def module(self) -> ModuleType:
        """The functions of the workload."""
        return loaded(self.name, self.file)

    @property
    def unit(self) -> str:
        """What is counted per second."""
        return getattr(self.module, "UNIT", "samples")

    @property
    def may_be_unused(self) -> bool:
        """Whether parameters may get no gradient in a step, as those of experts that no token chose."""
        return bool(getattr(self.module, "FIND_UNUSED_PARAMETERS", False))

    def network(self, device: torch.device, *, on_meta: bool = False) -> nn.Module:
        """The model, with the same parameters each time, which computes as the recipe says.

        With `on_meta`, one that model() leaves without data stays so, until `initialise` gives its values.
        """
        values = json.dumps(self._values_for("model"))
        model = self._model() if self.file else _copy_on(device, _built_in(self.name, values, self.seed))
        if device == META or (on_meta and is_on_meta(model)):
            model = put_on_meta(model)
        else:
            model = materialised(model, self.seed, device) if is_on_meta(model) else model.to(device)
        in_layout(model, self.recipe.channels_last)
        if self.recipe.compile:
            compile_blocks(self.wrappable_blocks(model), self.recipe.checkpointing)
        elif self.recomputes:
            for block in self.wrappable_blocks(model):
                change_forward(block, checkpointed(type(block).forward, self.recipe.checkpointing))
        training = getattr(self.module, "TRAINING", False)
        if self.exact:
            return proven_mode(nested.exactly(model), training)
        model = autocast_forward(model) if self.in_bf16 else model
        return proven_mode(model, training) if self.frozen else model.train()

    def blocks(self, model: nn.Module) -> list[nn.Module]:
        """The workload's own or, without blocks(model), the model's children; lists and dicts of modules are opened."""
        return opened(self.module.blocks(model) if hasattr(self.module, "blocks") else model.children())

    def wrappable_blocks(self, model: nn.Module) -> list[nn.Module]:
        """Blocks with parameters that can be checkpointed or sharded: modules of the model, none within another one.

        One that blocks(model) has put together from several modules is none: the model does not call it. Without
        blocks(model), of a child that has repeated layers, these and what is beside them.
        """
        own = hasattr(self.module, "blocks")
        blocks = self.blocks(model) if own else [unit for child in self.blocks(model) for unit in layers_of(child)]
        called, inside = set(model.modules()), {each for block in blocks for each in list(block.modules())[1:]}
        able = called - inside
        return [each for each in dict.fromkeys(blocks) if each in able and next(each.parameters(), None) is not None]

    def initialise(self, keep: Callable[[str, Tensor], None]) -> None:
        """Give `keep` every parameter and buffer of the model by its name: of one on meta, a module at a time."""
        initialise(self._model(), self.seed, keep)

    def _model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return self.call("model")  # type: ignore[no-any-return]

    def batch(self, size: int, device: torch.device, last: torch.device | None = None) -> tuple[Tree, Tree]:
        """Inputs of so many samples on a device, and their targets, there or on another one."""
        inputs, targets = self._drawn(size)
        return mapped(partial(self.placed, device), inputs), mapped(partial(self.placed, last or device), targets)

    def batches(self, device: torch.device, last: torch.device | None = None) -> list[tuple[Tree, Tree]]:
        """What its steps take in turn: one batch or, if it varies, one for each turn."""
        turns = NUM_BATCHES if self.varies else 1
        return [replace(self, turn=turn).batch(self.batch_size, device, last) for turn in range(turns)]

    def shared(self, device: torch.device, rank: int, ranks: int) -> list[tuple[Tree, Tree]]:
        """Of the whole batches, the equal shares of one of several ranks; the device gets no more than that."""
        return self.of_rank(rank, ranks).batches(device)

    def of_rank(self, rank: int, ranks: int) -> "Workload":
        """What one of several ranks trains alone: on its equal share of the batch."""
        return replace(self, batch_size=self.batch_size // ranks, part=(rank, ranks))

    def _drawn(self, size: int) -> tuple[Tree, Tree]:
        rank, ranks = (0, 1) if self.varies else self.part
        seed = seed_of(self.seed, self.part[0], self.turn) if self.varies else self.seed
        with torch.random.fork_rng(devices=[]):  # a batch() that ignores its seed draws the same one, too
            torch.manual_seed(seed)
            inputs, targets = self.call("batch", size * ranks, seed)
        return share(inputs, rank, ranks), share(targets, rank, ranks)

    def placed(self, device: torch.device, tensor: Tensor, *, non_blocking: bool = False) -> Tensor:
        """A tensor of a batch on a device, in the precision in which the model computes."""
        exact = nested.in_float64(tensor) if self.exact else tensor
        return in_layout(exact.to(device, non_blocking=non_blocking), self.recipe.channels_last)

    def dataset(self) -> Any:
        """What a DataLoader reads, the same each time; None if the workload says nothing of it."""
        if not hasattr(self.module, "dataset"):
            return None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return self.call("dataset")

    @property
    def loss(self) -> Callable[[Tree, Tree], Tensor]:
        """The mean over a batch; ours, and of others what autocast knows, are computed in float32 even in bf16."""
        return under_autocast(self.module.loss) if self.in_bf16 else self.module.loss

    @property
    def plain_loss(self) -> Callable[[Any, Any], Tensor]:
        """That of the plain loop, which shares no loss with what it judges; of a user's workload there is but one."""
        return self.module.loss if self.file else reference.loss

    def call(self, function: str, *args: Any) -> Any:
        """What a function of the file returns, given those of the values that it takes."""
        return getattr(self.module, function)(*args, **self._values_for(function))

    def _values_for(self, function: str) -> dict[str, Any]:
        names = accepted(getattr(self.module, function))
        return {key: value for key, value in self.given.items() if names is None or key in names}

    def units(self, samples: int) -> int:
        """How many samples or tokens so many samples are: of tokens, as many as the first input has elements.

        If it varies, as many as that of one sample alone, without padding, on average.
        """
        if self.unit == "samples":
            return samples
        return round(samples * _mean_length(replace(self, batch_size=1)))

    def plain(
        self,
        device: torch.device,
        sizes: tuple[int, ...],
        num_steps: int,
        exactly: bool,
        nudge: float = 0.0,
        *,
        scored: bool = False,
    ) -> reference.Plain:
        """The plain loop on one device over a batch in parts of these sizes; `exactly` in float64, in opposite order.

        Its parameters begin, relatively, by `nudge` from where they are. `exactly` needs twice the memory. What the
        device cannot hold at once it gets in smaller and smaller pieces. If it cannot hold the model, the CPU computes,
        or an error says that it is out of memory.
        """
        host = [] if self.device_only or device.type == "cpu" else [(self, HOST)]
        tries = chain(((load, device) for load in self._in_pieces(max(sizes))), host)
        wanted = sizes, num_steps, exactly, nudge, scored
        return first_that_fits(partial(load._trained, *wanted, place) for load, place in tries)

    def _in_pieces(self, most: int) -> Iterator["Workload"]:
        """The same, held as it is, then by a quarter of it at a time and so on, if its batches can be divided."""
        yield self
        each = min(self.each or most, most)
        while each > 1 and self.divisible(self.network(META)):
            each = max(1, each // 4)
            yield replace(self, each=each)

    def divisible(self, model: nn.Module) -> bool:
        """Whether a batch may be split: batch normalisation sees whole ones where it is trained."""
        return not (model.training and any(isinstance(module, BATCH_NORM) for module in model.modules()))

    def _trained(
        self, sizes: tuple[int, ...], num_steps: int, exactly: bool, nudge: float, scored: bool, device: torch.device
    ) -> reference.Plain:
        model = self.as_reference.network(device)
        if self.each and not self.no_mean and self.divisible(model):
            sizes = tuple(piece for size in sizes for piece in nested.sizes(size, self.each))
        return self._train(model, self.steps(sizes, num_steps, exactly, device), exactly, nudge, scored)

    def trained(
        self,
        steps: Sequence[reference.Step],
        device: torch.device,
        exactly: bool,
        nudge: float = 0.0,
        *,
        scored: bool = False,
    ) -> reference.Plain:
        """The plain loop over these steps; `exactly` over the same values in float64, and in the opposite order."""
        given = [self.exactly(parts) for parts in steps] if exactly else steps
        return self._train(self.as_reference.network(device), given, exactly, nudge, scored)

    def _train(
        self, model: nn.Module, steps: Sequence[reference.Step], exactly: bool, nudge: float, scored: bool
    ) -> reference.Plain:
        model = nested.exactly(model) if exactly and not self.inexact else model
        with torch.no_grad():
            for parameter in model.parameters() if nudge else ():
                parameter.mul_(1 + nudge)
        return reference.train(
            model,
            steps,
            loss=self.plain_loss,
            optimizer=self.optimizer_settings,
            bf16=self.in_bf16 and not exactly,
            scored=scored,
        )

    def steps(
        self, sizes: tuple[int, ...], num_steps: int, exactly: bool, device: torch.device
    ) -> Sequence[reference.Step]:
        """What the plain loop trains on: the same batch in every step or, if it varies, those of the first turns."""
        if not self.varies:
            return [self.parts(self.batch(sum(sizes), device), sizes, exactly)] * num_steps
        return [self._parts_of_turn(turn, sizes, exactly, device) for turn in range(num_steps)]

    def _parts_of_turn(self, turn: int, sizes: tuple[int, ...], exactly: bool, device: torch.device) -> reference.Step:
        """Of every share, whose batch is its own: each loss is the mean over its rows, and all count the same."""
        count, parts = len(sizes) // self.shares, list[reference.Part]()  # of a share's micro-batches
        for rank in range(self.shares):
            part = (rank, self.shares) if self.shares > 1 else self.part
            own = sizes[rank * count : (rank + 1) * count]
            batch = replace(self, turn=turn, part=part).batch(sum(own), device)
            parts += [replace(p, weight=p.weight / self.shares) for p in reference.split(*batch, own)]
        return self.exactly(parts) if exactly else parts

    def parts(self, batch: tuple[Tree, Tree], sizes: tuple[int, ...], exactly: bool) -> reference.Step:
        """A batch in parts of these sizes; `exactly` in float64, if the model can, and in the opposite order."""
        parts = reference.split(*batch, sizes)
        return self.exactly(parts) if exactly else parts

    def exactly(self, parts: reference.Step) -> reference.Step:
        """The same samples in float64, if the model can, and in the opposite order."""
        return [part.backwards() if self.inexact else part.exactly() for part in reversed(parts)]

    def without_data(self) -> tuple[Callable[[], object], Callable[[], object]]:
        """Scoring one sample, and the gradient of training on one, on tensors without data: to count operations."""
        model, batch = self.as_reference.network(META), self.batch(1, META)
        parts = reference.split(*batch, [1])
        return partial(model, batch[0]), partial(reference.gradient, model, parts, self.plain_loss)


@functools.cache
def _mean_length(workload: Workload) -> float:
    """Elements of the first input of one sample: the mean over so many that its error is small."""
    seeds = range(workload.seed, workload.seed + (LENGTHS if workload.varies else 1))
    lengths = [next(leaves(replace(workload, seed=seed, varies=False).batch(1, HOST)[0])).numel() for seed in seeds]
    return sum(lengths) / len(lengths)


def built_in(
    name: str, *, seed: int, lr: float = 0.0, batch_size: int = 1, exact: bool = False, **values: Any
) -> Workload:
    """One that comes with ScaleCard, with `values` for its functions."""
    return Workload(name, "", json.dumps(values), batch_size, seed, lr, exact=exact)


@functools.lru_cache(maxsize=1)
def _built_in(name: str, values: str, seed: int) -> nn.Module:
    """Drawing millions of parameters takes longer than copying them. A user's model may not be one to copy."""
    return Workload(name, "", values, 1, seed)._model()


def _copy_on(device: torch.device, model: nn.Module) -> nn.Module:
    """A copy on a device, without another one on the host, which takes a second for a model of 250 million values."""
    with torch.no_grad():
        there: dict[int, Any] = {
            id(each): nn.Parameter(each.to(device, copy=True), each.requires_grad) for each in model.parameters()
        }
        there |= {id(each): each.to(device, copy=True) for each in model.buffers()}
    return copy.deepcopy(model, there)


def chosen(workloads: Mapping[str, Mapping[str, Any]], seed: int) -> list[Workload]:
    """The workloads of an experiment's block as they are timed on one device; `source` only says what a file was."""
    found = []
    for name, block in workloads.items():
        values = {key: value for key, value in block.items() if key not in ("file", "batch_size", "source", "recipe")}
        recipe, file = Recipe(**block.get("recipe", {})), block.get("file", "")
        found.append(Workload(name, file, json.dumps(values), block["batch_size"], seed, recipe=recipe))
    return found
