"""DistributedDataParallel with its options, and steps with and without its communication."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from scalecard.distributed.context import RankContext

HOOKS = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}
BUCKET_BYTES = 25 * 2**20
LR = 0.01


def wrap(model: nn.Module, ctx: RankContext, *, hook: str | None = None, **options: Any) -> DistributedDataParallel:
    """The model on this rank's device under DDP. Options that are not given keep torch's defaults.

    bucket_cap_mb=25 is not the default: without the option there is also a small first bucket.
    """
    device_ids = None if ctx.device.type == "cpu" else [ctx.device]
    wrapped = DistributedDataParallel(model.to(ctx.device), device_ids=device_ids, **options)
    if hook is not None:
        wrapped.register_comm_hook(None, HOOKS[hook])
    return wrapped


@dataclass(frozen=True)
class Option:
    """One way to take a step: over `count` batches, or wrapped by DDP with a bucket size, a hook or another option.

    Without `synchronised` the gradients stay local; without `wrapped` there is no DDP.
    """

    name: str
    count: int = 1
    bucket_mib: int | None = None
    hook: str | None = None
    switch: str | None = None
    wrapped: bool = True
    synchronised: bool = True

    @property
    def sends(self) -> bool:
        """Whether the ranks' gradients are averaged."""
        return self.wrapped and self.synchronised

    def around(self, module: nn.Module, ctx: RankContext) -> nn.Module:
        """The module as this option trains it."""
        cap = {"bucket_cap_mb": self.bucket_mib} if self.bucket_mib else {}
        switch = {self.switch: True} if self.switch else {}
        return wrap(module, ctx, hook=self.hook, **cap, **switch) if self.wrapped else module


def every_option(buckets_mib: Iterable[int | None], hooks: Iterable[str], accumulation: Iterable[int]) -> list[Option]:
    """The default, and what may pay or cost beside it; a bucket size of None is the default's."""
    options = [Option("default"), Option("no_sync", synchronised=False)]
    options += [Option(f"bucket {cap} MiB", bucket_mib=cap) for cap in buckets_mib if cap is not None]
    options += [Option(switch, switch=switch) for switch in ("gradient_as_bucket_view", "static_graph")]
    options += [Option(f"{hook} hook", hook=hook) for hook in hooks]
    return options + [Option(f"accumulate {count}", count=count) for count in accumulation if count > 1]


class Stepper:
    """Repeated SGD steps on one resident batch, every rank's being different."""

    def __init__(self, module: nn.Module, ctx: RankContext, option: Option, batch: tuple[Tensor, Tensor]) -> None:
        self.option = option
        self.model: Any = option.around(module, ctx)  # DDP, if gradients may stay local
        self.images, self.labels = batch
        self.optimizer = torch.optim.SGD(module.parameters(), lr=LR)

    def step(self) -> None:
        """One step over `count` batches, whose gradients add up; at most the last one's backward synchronises."""
        for remaining in reversed(range(self.option.count)):
            synchronise = self.option.synchronised and remaining == 0
            with nullcontext() if synchronise else self.model.no_sync():
                functional.cross_entropy(self.model(self.images), self.labels).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def num_buckets(parameters: Iterable[Tensor], cap_mib: int | None) -> int:
    """Of the gradients in backward's order; without a cap DDP's is 25 MiB, and a first bucket is closed after 1 MiB.

    A bucket is closed by the gradient that fills it. Source: torch's Reducer, compute_bucket_assignment_by_size.
    """
    caps = [2**20, BUCKET_BYTES] if cap_mib is None else [cap_mib * 2**20]
    closed, size = 0, 0
    for parameter in reversed(list(parameters)):
        size += parameter.nbytes
        if size >= caps[min(closed, len(caps) - 1)]:
            closed, size = closed + 1, 0
    return closed + bool(size)
