"""Epochs of a module on one device or, wrapped in nn.DataParallel, on several: as the textbook's concise way is.

As timed the plain loop forwards each device's equal share by itself, because batch normalisation sees no more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from scalecard import progress
from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.counting import flops
from scalecard.measuring.proof import Change, Trained, expected, training
from scalecard.parallel.trainer import Trainer
from scalecard.workloads import datasets, reference
from scalecard.workloads.workload import Workload

CPU_NOTE = "nn.DataParallel is a silent no-op on a CPU: it would time the single device again"


@dataclass(frozen=True)
class WrappedEpoch:
    """Where an epoch is built: the workload with its batch size and learning rate, devices, and images (None: all)."""

    workload: Workload
    devices: int
    num_images: int | None = None

    def proven_at(self, *, each: int, check_steps: int) -> list["WrappedEpoch"]:
        """Small ones: in float64 with about `each` samples a device and a smaller last batch, and a step as timed.

        In training mode, every device needs its equal share.
        """
        even = each * self.devices
        exact = replace(self.workload, batch_size=even + 1, exact=True)
        return [
            replace(self, workload=exact, num_images=(even + 1) * check_steps - 1),
            replace(self, workload=replace(self.workload, batch_size=even), num_images=even),
        ]


def wrapped_epoch(
    first: Device, dataset: datasets.Dataset, scored: bool, at: WrappedEpoch, *, begun: Sequence[Tensor] = ()
) -> Subject:
    """An epoch, after which the test images are `scored`, or none.

    As timed, it goes on with a net that was trained before: `begun` are that one's parameters and buffers, of which all
    but the weights of convolutions and linear layers are kept.
    """
    workload = at.workload
    images = dataset.limited(at.num_images, None).to(first.torch)
    module = workload.network(first.torch)
    if begun and at.num_images is None:
        _take_over(module, begun)
    wrapped = nn.DataParallel(module, device_ids=list(range(at.devices))) if at.devices > 1 else module
    trainer = Trainer(wrapped, images, workload.batch_size, workload.lr, workload.seed, frozen=workload.exact)
    forward, whole = map(flops, workload.without_data())
    seen, steps = len(images.train), len(reference.batches(len(images.train), workload.batch_size))
    counts: dict[str, float] = {"updates": steps, "samples": seen}
    if at.devices == 1:  # DataParallel's threads are not seen
        counts |= {"FLOPs": seen * whole, **({"test FLOPs": len(images.test) * forward} if scored else {})}
    test: Callable[[], float] | None = partial(first.call, trainer.accuracy) if scored else None
    return training(
        f"an epoch on {progress.counted(at.devices, 'device')}",
        partial(first.submit, trainer.epoch),
        lambda: [*module.parameters(), *module.buffers()],
        partial(_expected, first, images.train, at),
        times=1 if at.num_images else 0,
        steps=steps,
        devices=[first],
        counts=counts,
        module=wrapped,
        order=trainer.order,
        test=test,
    )


@torch.no_grad()
def _take_over(module: nn.Module, begun: Sequence[Tensor]) -> None:
    renewed = {layer.weight for layer in module.modules() if isinstance(layer, nn.Conv2d | nn.Linear)}
    for own, kept in zip([*module.parameters(), *module.buffers()], begun, strict=True):
        if own not in renewed:
            own.copy_(kept)


def _expected(first: Device, train: datasets.Split, at: WrappedEpoch) -> Trained | Change:
    """An epoch of the plain loop; in training mode, devices normalise their own shares."""
    workload = at.workload
    split = partial(reference.epoch, train.images, train.labels, batch_size=workload.batch_size, seed=workload.seed)
    dtype, shares = (torch.float64, 1) if workload.exact else (torch.float32, at.devices)
    steps = split(dtype=dtype, shares=shares)
    return expected(workload.name, partial(workload.trained, steps, first.torch), exact=workload.exact)
