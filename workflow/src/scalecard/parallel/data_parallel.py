"""Data parallelism from scratch: parameters on every device, the minibatch scattered, gradients all-reduced.

batch --scatter--> shard d --> summed loss --> gradient d --all-reduce--> p_d -= lr / batch size * sum
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from scalecard.hardware.devices import Device, Task, keep_until_copied
from scalecard.parallel.scratch_allreduce import AllReduce, naive
from scalecard.workloads.builtin.lenet import lenet

Batch = tuple[Tensor, Tensor]


class ScratchDataParallel:
    """LeNet on several devices. Uneven shards stay exact: losses are summed, and divided by the whole batch once.

    Source: Dive into Deep Learning, chapter "Training on Multiple GPUs".
    """

    def __init__(
        self, devices: Sequence[Device], parameters: Sequence[Tensor], *, lr: float, all_reduce: AllReduce = naive
    ) -> None:
        self.devices, self.lr, self.all_reduce = devices, lr, all_reduce
        self.replicas = [[p.detach().to(d.torch, copy=True).requires_grad_() for p in parameters] for d in devices]

    def step(self, batch: Batch | Task) -> None:
        """One SGD step on a batch of (images, labels), which may be on any device, or the Task that makes it."""
        shards = split_batch(self.devices, batch)
        gradients = [
            device.submit(_gradients, parameters, shard)
            for device, parameters, shard in zip(self.devices, self.replicas, shards, strict=True)
        ]
        self.all_reduce(self.devices, gradients)
        for device, parameters, gradient in zip(self.devices, self.replicas, gradients, strict=True):
            device.submit(_sgd, parameters, gradient, self.lr, batch)

    def scores(self, images: Tensor) -> Tensor:
        """Class scores (n, 10) of the first replica; waits for them."""
        scores: Tensor = self.devices[0].call(torch.no_grad()(lenet), images, self.replicas[0])
        return scores


def split_batch(devices: Sequence[Device], batch: Batch | Task) -> list[Task]:
    """Scatter (images, labels): on every device its shard, consecutive rows; the first shards may be one row longer."""
    count = len(devices)
    return [d.submit(_shard, batch, index, count, d.torch) for index, d in enumerate(devices)]


def _shard(batch: Batch, index: int, count: int, device: torch.device) -> Batch:
    assert len(batch[0]) == len(batch[1]), f"{len(batch[0])} images and {len(batch[1])} labels"
    images, labels = (
        keep_until_copied(part.tensor_split(count)[index]).to(device, non_blocking=True) for part in batch
    )
    return images, labels


def _gradients(parameters: list[Tensor], shard: Batch) -> list[Tensor]:
    images, labels = shard
    loss = functional.cross_entropy(lenet(images, parameters), labels, reduction="sum")
    return list(torch.autograd.grad(loss, parameters))


@torch.no_grad()
def _sgd(parameters: list[Tensor], gradients: list[Tensor], lr: float, batch: Batch) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.sub_(gradient, alpha=lr / len(batch[1]))
