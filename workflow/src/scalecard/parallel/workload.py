"""ResNet-50 on random images, shared by the experiments that cut it: inputs, training for the proof, peak memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from scalecard.devices import Device
from scalecard.failures import guarded
from scalecard.models import freeze_batch_norm, resnet50_stages
from scalecard.parallel.model import ModelParallel
from scalecard.schema import Case, Record


@dataclass(frozen=True)
class Workload:
    """`batch_size` images of image_size x image_size x 3, mean squared error to one-hot labels, SGD."""

    batch_size: int
    image_size: int
    num_classes: int
    lr: float
    seed: int


def one_hot_images(
    load: Workload, first: torch.device, last: torch.device, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Images on the device of the first stage, one-hot labels on that of the last."""
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
    stages = [freeze_batch_norm(s.double()) for s in resnet50_stages(seed=load.seed, num_classes=load.num_classes)]
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


def peak_memory(runs: Iterable[tuple[Case, Callable[[], object], Sequence[Device]]]) -> Iterator[Record]:
    """One record a case and device: the most bytes that one call needs there besides what lay there before it.

    Parameters and inputs lie there before; activations, gradients and buffers come. One skipped record on CPUs.
    """
    for case, work, devices in runs:
        if devices[0].torch.type == "cpu":
            note = "CPU workers share the host's memory: there is no peak of one device"
            yield Record(case={"model": "resnet50"}, metric="peak_memory", unit="B", status="skipped", note=note)
            return
        yield from guarded(_peaks(case, work, devices), case, metric="peak_memory", unit="B")


def _peaks(case: Case, work: Callable[[], object], devices: Sequence[Device]) -> Iterator[Record]:
    used = {device.index: device for device in devices}.values()
    before = {}
    for device in used:
        device.synchronize()
        before[device.index] = torch.cuda.memory_allocated(device.torch)
        torch.cuda.reset_peak_memory_stats(device.torch)
    work()
    for device in used:
        device.synchronize()
        peak = float(torch.cuda.max_memory_allocated(device.torch) - before[device.index])
        yield Record(case={**case, "device": device.index}, metric="peak_memory", unit="B", samples=[peak])
