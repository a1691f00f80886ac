"""One training step of any module on resident batches, however the module is wrapped: backward, clipping, update.

Gradients are clipped by their global norm |g|, over all parameters on all devices:

    g *= min(1, max_norm / (|g| + 1e-6))

Source: Pascanu, Mikolov and Bengio, On the Difficulty of Training Recurrent Neural Networks, ICML 2013.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Partial
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from scalecard.workloads.nested import Tree, chunks, rows
from scalecard.workloads.reference import trainable, untrained
from scalecard.workloads.workload import Workload


@dataclass(eq=False)
class Step:
    """Forward, loss, backward, update, each time it is called; the gradients are cleared.

    With `micro_batch_size`, of at most so many samples at a time; a mean loss is weighted by their share. With
    `max_norm`, gradients are clipped to that global norm.
    """

    module: nn.Module
    inputs: Tree
    targets: Tree
    loss: Callable[[Any, Any], Tensor]
    optimizer: torch.optim.Optimizer
    max_norm: float = 0.0
    micro_batch_size: int = 0

    @classmethod
    def of(
        cls, workload: Workload, module: nn.Module, batch: tuple[Tree, Tree], made: torch.optim.Optimizer | None = None
    ) -> "Step":
        """A workload's step as its recipe says, by the recipe's optimiser or one that was `made` for the strategy."""
        settings, micro_batch_size = workload.optimizer_settings, workload.micro_batch_size(rows(batch[0]))
        optimizer = made or settings.build(trainable(module))
        return cls(module, *batch, workload.loss, optimizer, max_norm=settings.clip, micro_batch_size=micro_batch_size)

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


@contextmanager
def no_sync(module: nn.Module) -> Iterator[None]:
    """Meanwhile backwards add up this rank's gradients, which DDP or FSDP2 exchanges with the next one."""
    if isinstance(module, DistributedDataParallel):
        with module.no_sync():
            yield
    elif isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            module.set_requires_gradient_sync(True)
    else:
        yield


def update(optimizer: torch.optim.Optimizer, max_norm: float, group: dist.ProcessGroup | None = None) -> None:
    """Clip the gradients to this global norm, if it is not 0, apply them and clear them.

    The norm is that of the gradients of all ranks of a `group`, each of which has some of them.
    """
    if max_norm:
        squared = squared_norm(optimizer)
        if group:
            dist.all_reduce(squared, group=group)
        clip(optimizer, squared, max_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def squared_norm(optimizer: torch.optim.Optimizer) -> Tensor:
    """Of the gradients of all its parameters, a scalar; of what is divided over ranks, of all of it: all take part."""
    groups = [[p.grad for p in group if p.grad is not None] for group in _by_mesh(optimizer)]
    return torch.stack([_norm(gradients) for gradients in groups]).square().sum()


def _norm(gradients: Sequence[Tensor]) -> Tensor:
    """Of all their values on all ranks; the squares of shards in the host's memory are added up on the device."""
    first = gradients[0] if gradients else None
    if isinstance(first, DTensor) and first.device.type != first.device_mesh.device_type:
        local = get_total_norm([each.to_local() for each in gradients if isinstance(each, DTensor)])
        squared = local.square().to(first.device_mesh.device_type)
        return DTensor.from_local(squared, first.device_mesh, [Partial()]).full_tensor().sqrt().to(first.device)
    norm = get_total_norm(gradients)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def clip(optimizer: torch.optim.Optimizer, squared: Tensor, max_norm: float) -> None:
    """Shorten its gradients, if their global norm, whose square is given, is larger than `max_norm`."""
    for group in _by_mesh(optimizer):
        clip_grads_with_norm_(group, max_norm, squared.sqrt())


def _by_mesh(optimizer: torch.optim.Optimizer) -> list[list[Tensor]]:
    """Its parameters, apart by the ranks that they are divided over: PyTorch takes one kind at a time."""
    meshes: dict[Any, list[Tensor]] = {}
    for parameter in (each for group in optimizer.param_groups for each in group["params"]):
        meshes.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    return list(meshes.values())


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
