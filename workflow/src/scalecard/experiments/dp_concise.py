"""What does nn.DataParallel bring, and is it the devices that cost the textbook's pair its accuracy?

The ResNet-18 variant over the whole grid of batch size, learning rate and number of devices. The textbook compares
one device at batch 256, lr 0.1 with two at batch 512, lr 0.2 (weak scaling); the grid also has one device at 512 and
0.2, to separate the effect of the devices from that of batch size and learning rate.

The answer would be wrong if DataParallel computed something else (proven in float64 on GPUs, with batch normalisation
in eval mode because per-device statistics are a different function), or if it were a silent no-op, as it is on a CPU,
where it is skipped.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn

from scalecard import progress
from scalecard.hardware.devices import Device, device_counts, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.epochs import time_epochs
from scalecard.measuring.out_of_memory import guarded
from scalecard.measuring.proof import same_parameters
from scalecard.measuring.spec import Common, Positive, Rates, Sweep
from scalecard.measuring.variant import Variant
from scalecard.records.record import Case, Check, Record
from scalecard.training import datasets
from scalecard.training.models import freeze_batch_norm, resnet18_variant
from scalecard.training.trainer import Trainer

CPU_NOTE = "nn.DataParallel is a silent no-op on a CPU: it would time the single device again"


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    batch_sizes: Sweep
    lrs: Rates
    epochs: Positive
    train_images: Positive | None
    test_images: Positive | None
    check_steps: Positive


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Seconds of every epoch, and accuracy after it, over the grid."""
    dataset = datasets.load(spec.dataset, Path(spec.data_dir)).limited(spec.train_images, spec.test_images)
    with open_devices(machine) as devices:
        counts = device_counts(len(devices))
        usable = [1] if machine.emulated else counts
        checks = {n: _checks(spec, devices[0], n, dataset) for n in usable if n > 1}
        for batch_size, lr in itertools.product(spec.batch_sizes, spec.lrs):
            progress.doing(f"batch {batch_size}, lr {lr}, {usable} devices")
            records = _grid_point(spec, devices, usable, dataset, batch_size, lr, checks)
            yield from guarded(records, {"batch_size": batch_size, "lr": lr}, metric="epoch_time")
    for count in {*counts, 2} - {*usable}:
        note = CPU_NOTE if machine.emulated else f"needs {count} devices, this machine has {machine.num_devices}"
        yield Record.skipped({"devices": count}, note, metric="epoch_time")


def _grid_point(
    spec: Spec,
    devices: list[Device],
    counts: list[int],
    dataset: datasets.Dataset,
    batch_size: int,
    lr: float,
    checks: dict[int, list[Check]],
) -> Iterator[Record]:
    """One batch size and learning rate on every number of devices, in turns."""
    first = devices[0]
    resident = dataset.to(first.torch)
    trainers, accuracies, variants = dict[str, Trainer](), dict[str, list[float]](), list[Variant]()
    for count in counts:
        name, model = f"{count} devices", _wrap(resnet18_variant(seed=spec.seed).to(first.torch), count)
        trainers[name], accuracies[name] = Trainer(model, resident, batch_size, lr, spec.seed), []
        case: Case = {"devices": count, "batch_size": batch_size, "lr": lr, "data": dataset.name}
        work = partial(first.submit, trainers[name].epoch)
        variants.append(Variant(name=name, case=case, work=work, checks=checks.get(count, [])))

    def test(variant: Variant) -> None:
        accuracies[variant.name].append(first.call(trainers[variant.name].accuracy))

    for timing in time_epochs(variants, num_epochs=spec.epochs, devices=devices, after=test):
        yield timing.record("epoch_time")
        curve = accuracies[timing.variant.name]
        yield Record(case=timing.variant.case, metric="accuracy", unit="fraction", samples=[curve])


def _wrap(model: nn.Module, count: int) -> nn.Module:
    return nn.DataParallel(model, device_ids=list(range(count))) if count > 1 else model


def _checks(spec: Spec, device: Device, count: int, dataset: datasets.Dataset) -> list[Check]:
    """Parameters after several float64 steps on `count` GPUs against one."""

    def train(num_devices: int) -> list[torch.Tensor]:
        model = resnet18_variant(seed=spec.seed).to(device.torch, torch.float64)
        wrapped = _wrap(model, num_devices)
        trainer = Trainer(wrapped, dataset, 2 * count, spec.lrs[0], spec.seed)
        freeze_batch_norm(model.train())
        for images, labels in dataset.train.first(2 * count * spec.check_steps).to(device.torch).batches(2 * count):
            trainer.step(images.double(), labels)
        return list(model.parameters())

    return [
        same_parameters(f"parameters after {spec.check_steps} steps, batch norm in eval mode", train(count), train(1))
    ]
