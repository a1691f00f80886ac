"""One training step of any module on one resident batch, however the module is wrapped."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from scalecard.parallel.gradients import clip, no_sync, squared_norm
from scalecard.workloads.nested import Tree, chunks, rows
from scalecard.workloads.reference import trainable, untrained
from scalecard.workloads.workload import Workload


class Step:
    """Forward, loss, backward, update, each time it is called; the gradients are cleared.

    With `micro_batch_size`, of at most so many samples at a time; a mean loss is weighted by their share. With
    `max_norm`, gradients are clipped to that global norm.
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: Tree,
        targets: Tree,
        *,
        loss: Callable[[Any, Any], Tensor],
        optimizer: torch.optim.Optimizer,
        max_norm: float = 0.0,
        micro_batch_size: int = 0,
    ) -> None:
        self.module, self.inputs, self.targets, self.loss = module, inputs, targets, loss
        self.optimizer, self.max_norm, self.micro_batch_size = optimizer, max_norm, micro_batch_size

    @classmethod
    def of(
        cls, workload: Workload, module: nn.Module, batch: tuple[Tree, Tree], made: torch.optim.Optimizer | None = None
    ) -> "Step":
        """A workload's step as its recipe says, by the recipe's optimiser or one that was `made` for the strategy."""
        settings = workload.optimizer_settings
        return cls(
            module,
            *batch,
            loss=workload.loss,
            optimizer=made or settings.build(trainable(module)),
            max_norm=settings.clip,
            micro_batch_size=workload.micro_batch_size(rows(batch[0])),
        )

    def on(self, inputs: Tree, targets: Tree) -> None:
        """A step on another batch."""
        self.inputs, self.targets = inputs, targets
        self()

    def __call__(self) -> None:
        size = self.micro_batch_size or rows(self.inputs)
        parts = list(zip(chunks(self.inputs, size), chunks(self.targets, size), strict=True))
        accumulate_gradients(self.module, parts, lambda inputs, targets: self.loss(self.module(inputs), targets))
        update(self.optimizer, self.max_norm)


def accumulate_gradients(
    module: nn.Module, parts: Sequence[tuple[Tree, Tree]], loss: Callable[[Tree, Tree], Tensor]
) -> None:
    """Forward and backward over each part of a batch: mean losses count by their share of the samples.

    A module that exchanges its gradients does so with the last part.
    """
    whole = sum(rows(inputs) for inputs, _ in parts)
    for left, (inputs, targets) in zip(reversed(range(len(parts))), parts, strict=True):
        with no_sync(module) if left else nullcontext():
            value = loss(inputs, targets)
            (value * (rows(inputs) / whole) if len(parts) > 1 else value).backward()


def update(optimizer: torch.optim.Optimizer, max_norm: float) -> None:
    """Clip the gradients to this global norm, if it is not 0, apply them and clear them."""
    if max_norm:
        clip(optimizer, squared_norm(optimizer), max_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


class BatchCycle:
    """A step on several batches: each call takes the next one, over and over or, while one is held, that."""

    def __init__(self, step: Callable[[Tree, Tree], object], batches: Sequence[tuple[Tree, Tree]]) -> None:
        self.step, self.batches, self.turn, self.held = step, batches, 0, False

    def hold(self, turn: int | None) -> None:
        """Take this batch from now on; None: again each in turn, from the first."""
        self.turn, self.held = turn or 0, turn is not None

    @property
    def cycle(self) -> Mapping[str, Any]:
        """What a Subject says of it."""
        return {"turns": len(self.batches), "hold": self.hold}

    def __call__(self) -> None:
        self.step(*self.batches[self.turn])
        if not self.held:
            self.turn = (self.turn + 1) % len(self.batches)


def state_of(model: nn.Module) -> list[Tensor]:
    """What training changes or may change: trained parameters, then the others and the buffers."""
    return [*trainable(model), *untrained(model)]
