"""ResNet-50 on random images, for the experiments that cut it: the workload, its inputs, training for the proof."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from scalecard.hardware.devices import Device
from scalecard.training.model_parallel import ModelParallel
from scalecard.training.models import freeze_batch_norm, resnet50_stages


@dataclass(frozen=True)
class Workload:
    """`batch_size` images of image_size x image_size x 3, mean squared error to one-hot labels, SGD."""

    batch_size: int
    image_size: int
    num_classes: int
    lr: float
    seed: int

    @classmethod
    def of(cls, spec: Any) -> "Workload":
        """The workload that is timed, from the values of the same names in an experiment's Spec."""
        return cls(spec.batch_size, spec.image_size, spec.num_classes, spec.lr, spec.seed)

    @classmethod
    def of_check(cls, spec: Any) -> "Workload":
        """The small one on which equality is proven: the Spec's check_batch_size and check_image_size."""
        return cls(spec.check_batch_size, spec.check_image_size, spec.num_classes, spec.lr, spec.seed)

    def stages(self) -> list[nn.Module]:
        """ResNet-50 cut in two, with the same parameters each time."""
        return resnet50_stages(seed=self.seed, num_classes=self.num_classes)


def one_hot_images(
    load: Workload, first: torch.device, last: torch.device, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Images on the first stage's device, one-hot labels on the last stage's."""
    generator = torch.Generator().manual_seed(load.seed)
    images = torch.randn(load.batch_size, 3, load.image_size, load.image_size, generator=generator, dtype=dtype)
    labels = torch.randint(load.num_classes, (load.batch_size,), generator=generator)
    targets = functional.one_hot(labels, load.num_classes).to(dtype)
    return images.to(first), targets.to(last)


def trained(
    load: Workload,
    devices: Sequence[Device],
    step: Callable[..., None],
    num_steps: int,
    strategy: Callable[..., ModelParallel] = ModelParallel,
) -> list[Tensor]:
    """The float64 parameters after step(model, images, targets) `num_steps` times; batch norm in eval mode."""
    stages = [freeze_batch_norm(stage.double()) for stage in load.stages()]
    model = strategy(stages, devices, lr=load.lr)
    images, targets = one_hot_images(load, devices[0].torch, devices[-1].torch, torch.float64)
    for _ in range(num_steps):
        step(model, images, targets)
        for device in devices:
            device.synchronize()
    return model.parameters()


def reference(load: Workload, device: Device, num_steps: int) -> list[Tensor]:
    """The single device's parameters, which every strategy must reach."""
    return trained(load, [device, device], ModelParallel.step, num_steps)
