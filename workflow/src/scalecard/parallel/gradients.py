"""What a step does with gradients before its update: let them add up without exchanging them, and clip them.

They are clipped by their global norm |g|, over all parameters on all devices: g *= min(1, max_norm / (|g| + 1e-6)).

Source: Pascanu, Mikolov and Bengio, On the Difficulty of Training Recurrent Neural Networks, ICML 2013.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Partial
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm


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
