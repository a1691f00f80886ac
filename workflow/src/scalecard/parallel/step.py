"""One training step of any module on one resident batch, however the module is wrapped.

The batch may be forwarded in micro-batches whose gradients add up, of which the last alone is exchanged, and the
gradients clipped by their global norm: g *= min(1, limit / (|g| + 1e-6)), with |g| over all parameters on all devices.

Source: Pascanu, Mikolov and Bengio, On the Difficulty of Training Recurrent Neural Networks, ICML 2013.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

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


@contextmanager
def without_exchange(module: nn.Module) -> Iterator[None]:
    """Meanwhile backwards add up this rank's gradients, which DDP or FSDP2 exchanges with the next one."""
    if isinstance(module, DistributedDataParallel):
        with module.no_sync():
            yield
    elif isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(False)
        yield
        module.set_requires_gradient_sync(True)
    else:
        yield


def optimized(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The parameters that an optimiser changes."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def squared_norm(parameters: Sequence[Tensor]) -> Tensor:
    """Of all gradients, a scalar; of what is divided over ranks, of all of it: all of them take part."""
    norms = [get_total_norm([p.grad for p in group if p.grad is not None]) for group in _by_mesh(parameters)]
    whole = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]
    return torch.stack(whole).square().sum()


def clip(parameters: Sequence[Tensor], squared: Tensor, limit: float) -> None:
    """Shorten the gradients, if their squared global norm is larger than the limit's square."""
    for group in _by_mesh(parameters):
        clip_grads_with_norm_(group, limit, squared.sqrt())


def _by_mesh(parameters: Sequence[Tensor]) -> list[list[Tensor]]:
    """What is divided over the same ranks, which PyTorch takes at a time, and what is not divided."""
    meshes: dict[Any, list[Tensor]] = {}
    for parameter in parameters:
        meshes.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    return list(meshes.values())


def state_of(model: nn.Module) -> list[Tensor]:
    """What training changes or may change: trained parameters, then the others and the buffers."""
    return [*trainable(model), *untrained(model)]
