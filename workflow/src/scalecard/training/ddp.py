"""DistributedDataParallel with its options, and the steps that take it apart: with, without and only communication."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from scalecard.distributed.context import RankContext
from scalecard.training.datasets import Dataset

HOOKS = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}
BUCKET_BYTES = 25 * 2**20
LR = 0.01


def wrap(model: nn.Module, ctx: RankContext, *, hook: str | None = None, **options: Any) -> DistributedDataParallel:
    """The model on this rank's device under DDP. Options that are not given keep torch's defaults.

    bucket_cap_mb=25 is not the default: without the option there is also a small first bucket.
    """
    device_ids = [ctx.device] if ctx.device.type == "cuda" else None
    wrapped = DistributedDataParallel(model.to(ctx.device), device_ids=device_ids, **options)
    if hook is not None:
        wrapped.register_comm_hook(None, HOOKS[hook])
    return wrapped


class Stepper:
    """Repeated SGD steps on one resident batch of `batch_size` samples per rank."""

    def __init__(self, model: nn.Module, dataset: Dataset, batch_size: int) -> None:
        self.model = model
        self.images, self.labels = dataset.train.batch(slice(0, batch_size))
        self.optimizer = torch.optim.SGD(model.parameters(), lr=LR)

    def step(self) -> None:
        """Forward, backward with synchronised gradients, update."""
        self.accumulated_step(1)

    def step_without_sync(self) -> None:
        """The same work without any communication: the gradients stay local."""
        self._backward(synchronise=False)
        self._update()

    def accumulated_step(self, count: int) -> None:
        """One step over `count` batches; only the last one's backward synchronises."""
        for remaining in reversed(range(count)):
            self._backward(synchronise=remaining == 0)
        self._update()

    def _backward(self, *, synchronise: bool) -> None:
        local = isinstance(self.model, DistributedDataParallel) and not synchronise
        with self.model.no_sync() if local else nullcontext():  # type: ignore[operator]
            functional.cross_entropy(self.model(self.images), self.labels).backward()

    def _update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def all_reduce_alone(model: nn.Module) -> Callable[[], None]:
    """All-reduce as many bytes as the gradients have, in buckets of DDP's size, and nothing else."""
    first = next(model.parameters())
    flat = torch.zeros(sum(p.numel() for p in model.parameters()), dtype=first.dtype, device=first.device)
    buckets = flat.split(BUCKET_BYTES // flat.element_size())

    def reduce() -> None:
        for work in [dist.all_reduce(bucket, async_op=True) for bucket in buckets]:
            work.wait()

    return reduce
