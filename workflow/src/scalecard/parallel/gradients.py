"""What a step does with gradients before its update: let them add up without exchanging them, and clip them.

They are clipped by their global norm: g *= min(1, limit / (|g| + 1e-6)), with |g| over all parameters on all devices.

Source: Pascanu, Mikolov and Bengio, On the Difficulty of Training Recurrent Neural Networks, ICML 2013.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm


@contextmanager
def without_exchange(module: nn.Module) -> Iterator[None]:
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
