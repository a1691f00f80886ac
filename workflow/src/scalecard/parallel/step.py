"""One training step of any module on one resident batch, however the module is wrapped."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from scalecard.parallel.gradients import clip, optimized, squared_norm, without_exchange
from scalecard.workloads.nested import Tree, chunks, rows
from scalecard.workloads.reference import trainable, untrained


class Step:
    """Forward, loss, backward, update, each time it is called; the gradients are cleared.

    With `micro_batch`, of at most so many samples at a time; a mean loss is weighted by their share. With `limit`,
    gradients are clipped to that global norm.
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: Tree,
        targets: Tree,
        *,
        loss: Callable[[Any, Any], Tensor],
        optimizer: torch.optim.Optimizer,
        limit: float = 0.0,
        micro_batch: int = 0,
    ) -> None:
        self.module, self.inputs, self.targets, self.loss = module, inputs, targets, loss
        self.optimizer, self.limit, self.micro_batch = optimizer, limit, micro_batch

    def __call__(self) -> None:
        whole = rows(self.inputs)
        size = self.micro_batch or whole
        parts = list(zip(chunks(self.inputs, size), chunks(self.targets, size), strict=True))
        for left, (inputs, targets) in zip(reversed(range(len(parts))), parts, strict=True):
            with without_exchange(self.module) if left else nullcontext():
                value = self.loss(self.module(inputs), targets)
                (value * (rows(inputs) / whole) if len(parts) > 1 else value).backward()
        if self.limit:
            clip(optimized(self.optimizer), squared_norm(optimized(self.optimizer)), self.limit)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def state_of(model: nn.Module) -> list[Tensor]:
    """What training changes or may change: trained parameters, then the others and the buffers."""
    return [*trainable(model), *untrained(model)]
