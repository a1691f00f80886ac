"""A setting, and reference results of the plain single-device loop for it, cached."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch.utils.checkpoint import checkpoint

from scalecard.hardware.host import is_out_of_memory
from scalecard.measuring.counting import operations
from scalecard.measuring.proof import Change, Trained, expected
from scalecard.workloads import reference
from scalecard.workloads.nested import sizes
from scalecard.workloads.recipe import checkpoint_options
from scalecard.workloads.stage_cuts import Cuts
from scalecard.workloads.workload import Workload

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

    def counts(self, workload: Workload, sizes: Sequence[int]) -> dict[str, float]:
        """The operations of parts of these sizes; nothing if the device, which counts as it computes, is too small.

        Nor if batches have unequal lengths: each has other operations.
        """
        if not self.counting or workload.varies:
            return {}
        known = [one for size in sizes if (one := self.operations(workload, size))]
        return {name: sum(one[name] for one in known) for name in known[0]} if len(known) == len(sizes) else {}

    def at(self, workload: Workload, parts: Sequence[int]) -> Callable[[], Trained | Change]:
        """After so many samples at a time; in float64 that makes no difference."""
        whole = (workload.batch_size // workload.shares,) * workload.shares
        return partial(self.wanted, workload, whole if workload.exact else tuple(parts))

    def _wanted(self, workload: Workload, parts: tuple[int, ...]) -> Trained | Change:
        plain = partial(workload.plain, self.device, parts, self.times(workload))
        return expected(workload.name, plain, exact=workload.exact)

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
