"""A way to train a workload, and how it is built: at a setting, with what the plain single-device loop makes there."""

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from scalecard import progress
from scalecard.hardware.host import is_out_of_memory
from scalecard.measuring.case_variant import Subject, Work
from scalecard.measuring.counting import operations
from scalecard.measuring.proof import Change, Trained, expected, step_distance, training
from scalecard.measuring.timer import Synchronised
from scalecard.records.axes import Case
from scalecard.records.record import Check
from scalecard.records.strategies import Strategy
from scalecard.workloads import reference
from scalecard.workloads.compiled import Compiled, compiled_code
from scalecard.workloads.nested import sizes
from scalecard.workloads.recipe import TEXTBOOKS, checkpoint_options
from scalecard.workloads.stage_cuts import Cuts
from scalecard.workloads.workload import Workload

STEP, LOCAL, UPDATE = "step_time", "local_time", "update_time"
UNSYNCHRONISED, EXCHANGE = "unsynchronised_time", "exchange_time"
BEYOND_ROUNDING = 1e-6  # of a gradient, also where a model computes in float32 inside of float64
CHECKED_EACH = 2  # samples of every device on which equality is proven


@dataclass(frozen=True)
class Setting:
    """Where a strategy is built: the workload with the batch of all devices, their number, and micro-batches.

    A model that is cut is cut at `cuts` or, without them, where its stages have about as many operations. Micro-batches
    have `micro_batch` samples each or, without it, about as many.
    """

    workload: Workload
    devices: int
    num_micro: int = 1
    cuts: Cuts = ()
    micro_batch: int = 0

    @property
    def split_size(self) -> int:
        """Samples of a micro-batch; the last one may have fewer."""
        return self.micro_batch or -(-self.workload.batch_size // self.num_micro)

    def micro_sizes(self) -> tuple[int, ...]:
        """Samples of every micro-batch."""
        return sizes(self.workload.batch_size, self.split_size)

    def shares(self) -> tuple[int, ...]:
        """Samples of every rank."""
        return (self.workload.batch_size // self.devices,) * self.devices


class References:
    """The plain loop on one device, cached: `steps` steps in float64, one as timed.

    Trials need no `counting`.
    """

    def __init__(self, device: torch.device, steps: int, *, counting: bool = True) -> None:
        self.device, self.steps, self.counting = device, steps, counting
        self.wanted, self.operations = functools.cache(self._wanted), functools.cache(self._operations)
        self.apart = functools.cache(self._apart)

    def counts(self, workload: Workload, sizes: Sequence[int]) -> dict[str, float]:
        """The operations of parts of these sizes; nothing if the device, which counts as it computes, is too small.

        Nor if batches have unequal lengths: each has other operations.
        """
        if not self.counting or workload.varies:
            return {}
        known = [one for size in sizes if (one := self.operations(workload, size))]
        return {name: sum(one[name] for one in known) for name in known[0]} if len(known) == len(sizes) else {}

    def at(self, workload: Workload, parts: Sequence[int]) -> Callable[[], Trained | Change]:
        """After so many samples at a time; in float64 that makes no difference, if the loss is a mean over samples."""
        whole = (workload.batch_size // workload.shares,) * workload.shares
        return partial(self.wanted, workload, whole if workload.exact and not workload.no_mean else tuple(parts))

    def _wanted(self, workload: Workload, parts: tuple[int, ...]) -> Trained | Change:
        plain = partial(workload.plain, self.device, parts, self.times(workload))
        return expected(workload.name, plain, exact=workload.exact)

    def _apart(self, workload: Workload, parts: tuple[int, ...]) -> float:
        """How far the gradient of these parts is from that of the whole batch, over the length of that: a step of 1."""
        workload = replace(workload, lr=1.0, recipe=TEXTBOOKS)
        ours, theirs = (workload.plain(self.device, sizes, 1, exactly=False) for sizes in (parts, (sum(parts),)))
        return step_distance(ours, theirs)

    def times(self, workload: Workload) -> int:
        """How many steps are compared."""
        return self.steps if workload.exact else 1

    def _operations(self, workload: Workload, samples: int) -> dict[str, float]:
        """Of one step's forward and backward over so many samples at once; empty if this device cannot hold them."""
        try:
            plain, bf16 = workload.as_reference, workload.in_bf16
            model = plain.network(self.device).train(not workload.exact)  # as it is timed, whatever it is proven in
            parts = reference.split(*workload.batch(samples, self.device), [samples])
            gradient = partial(reference.gradient, model, parts, plain.loss, bf16=bf16)
            once = operations(gradient, workload.flop_counts)
            if not workload.recomputes:
                return once
            for block in plain.wrappable_blocks(model):
                options = checkpoint_options(workload.recipe.checkpointing)
                block.forward = partial(checkpoint, block.forward, **options)
            found = operations(gradient, workload.flop_counts)
            return {**found, "recomputed FLOPs": found["FLOPs"] - once["FLOPs"]}
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        return {}


class CannotBe(ValueError):
    """A workload cannot be trained in this way, and why."""


@dataclass(frozen=True)
class StrategyBuilder:
    """An entry of the catalogue, and what builds a subject of it, or raises CannotBe.

    `replicas` of the model share the batch. `suits` raises CannotBe for a setting at which it cannot be timed. With
    another `metric`, it is no strategy, but a part of one that explains its time, and is proven as it is timed only;
    `axes` say which part, and whether it depends on the batch (`of_batch`). A part whose proof also `trains` needs the
    memory for that, too. A `note` goes to the record, and so does a `remark` on a setting.
    """

    kind: Strategy
    build: Callable[[References, Setting], Subject]
    replicas: int = 1
    suits: Callable[[Setting], object] = bool
    metric: str = STEP
    axes: Case = field(default_factory=dict)
    of_batch: bool = True
    trains: Callable[[References, Setting], Subject] | None = None
    note: str = ""
    remark: Callable[[Setting], str] = lambda _at: ""

    @property
    def pipelined(self) -> bool:
        """Whether it takes micro-batches."""
        return self.kind.schedule is not None

    @property
    def is_part(self) -> bool:
        """Whether it only explains the time of a strategy."""
        return self.metric != STEP


def trained(
    at: Setting,
    work: Work,
    state: Callable[[], Sequence[Tensor]],
    wanted: Callable[[], Trained | Change],
    *,
    references: References,
    modules: Sequence[nn.Module],
    devices: Sequence[Synchronised],
    counts: Mapping[str, float],
    repeats: int = 1,
    **more: Any,
) -> Subject:
    """A subject that trains these modules, of which the first is watched; a call of it takes `repeats` steps.

    A model that draws random numbers is proven in eval mode, and then counted and timed as it is trained.
    """
    steps = references.times(at.workload)
    subject = training(
        f"{at.workload.name}, {progress.counted(at.devices, 'device')}",
        work,
        state,
        wanted,
        times=steps // repeats,
        steps=steps,
        devices=devices,
        counts=counts,
        module=modules[0],
        **more,
    )
    subject = in_train_mode(subject, at.workload, modules)
    return with_compilation_checked(subject, compiled_code(modules)) if at.workload.recipe.compile else subject


def with_compilation_checked(subject: Subject, code: Collection[Compiled]) -> Subject:
    """The subject, and whether compiled code ran in every forward: checked once it is proven and once it is timed.

    Where torch.compile gives up, it runs the plain code and says nothing.
    """
    before = {each: (each.plain_calls, each.calls) for each in code}  # of other subjects of the same blocks

    def check() -> Iterator[Check]:
        plain = sum(each.plain_calls - plain + (each.calls == calls) for each, (plain, calls) in before.items())
        dtype = str(next(iter(subject.parameters())).dtype).removeprefix("torch.")
        yield Check(name="forwards in which no compiled code ran", dtype=dtype, difference=plain, tolerance=0.0)

    return replace(
        subject, prove=lambda: chain(subject.prove(), check()), after=lambda: chain(subject.after(), check())
    )


def in_train_mode(subject: Subject, workload: Workload, modules: Sequence[nn.Module]) -> Subject:
    """A subject of these modules as it is trained: if the model draws random numbers, once it is proven without."""

    def prove() -> Iterator[Check]:
        yield from subject.prove()
        for module in modules:
            module.train()

    return replace(subject, prove=prove) if workload.frozen and not workload.exact else subject
