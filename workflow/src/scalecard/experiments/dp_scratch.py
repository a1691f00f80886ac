"""Does data parallelism written by hand train faster on more devices, and as well?

LeNet from raw tensors on 1..N devices at the same batch and learning rate (strong scaling): seconds per epoch, and
test accuracy after each. The runs on different numbers of devices take turns, epoch by epoch.

The answer would be wrong if more devices computed something else (proven in float64, for both all-reduces), if an
epoch ended before its last device was done, or if the input path were the bottleneck (the data set is resident).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from scalecard import progress
from scalecard.hardware.devices import Device, device_counts, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.epochs import time_epochs
from scalecard.measuring.proof import same_parameters
from scalecard.measuring.spec import Common, Positive, Rate
from scalecard.measuring.variant import Variant
from scalecard.records.record import Case, Check, Record
from scalecard.training import datasets
from scalecard.training.data_parallel import ScratchDataParallel
from scalecard.training.models import lenet_parameters
from scalecard.training.scratch_allreduce import ALGORITHMS
from scalecard.training.trainer import accuracy


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    batch_size: Positive
    lr: Rate
    epochs: Positive
    train_images: Positive | None
    test_images: Positive | None
    check_steps: Positive


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Seconds of every epoch, and accuracy after it, for 1..N devices."""
    dataset = datasets.load(spec.dataset, Path(spec.data_dir)).limited(spec.train_images, spec.test_images)
    with open_devices(machine) as devices:
        counts = device_counts(len(devices))
        progress.doing(f"proving equality on up to {len(devices)} devices in float64")
        checks = {count: _checks(spec, devices[:count], dataset) for count in counts}
        runs = {f"{count} devices": _Run(spec, devices[:count], dataset) for count in counts}
        case: Case = {"batch_size": spec.batch_size, "lr": spec.lr, "data": dataset.name}
        variants = [
            Variant(name=name, case={"devices": count, **case}, work=run.epoch, checks=checks[count])
            for count, (name, run) in zip(counts, runs.items(), strict=True)
        ]
        timings = time_epochs(
            variants, num_epochs=spec.epochs, devices=devices, after=lambda variant: runs[variant.name].test()
        )
    for timing in timings:
        yield timing.record("epoch_time")
        accuracies = runs[timing.variant.name].accuracies
        yield Record(case=timing.variant.case, metric="accuracy", unit="fraction", samples=[accuracies])
    if len(devices) == 1:
        yield Record.skipped({"devices": 2}, "needs 2 devices, this machine has 1", metric="epoch_time")


class _Run:
    """Training on one number of devices, with its own parameters and order of images."""

    def __init__(self, spec: Spec, devices: Sequence[Device], dataset: datasets.Dataset) -> None:
        self.devices, self.batch_size = devices, spec.batch_size
        self.dataset = dataset.to(devices[0].torch)
        self.order = torch.Generator().manual_seed(spec.seed)
        self.model = ScratchDataParallel(devices, lenet_parameters(seed=spec.seed), lr=spec.lr)
        self.accuracies: list[float] = []

    def epoch(self) -> None:
        train = self.dataset.train
        order = torch.randperm(len(train), generator=self.order).to(train.labels.device)
        for index in order.split(self.batch_size):
            self.model.step(self.devices[0].submit(train.batch, index))

    def test(self) -> None:
        test = self.dataset.test
        scores = [self.model.scores(images) for images, _ in test.batches(1000)]
        self.accuracies.append(accuracy(torch.cat(scores), test.labels))


def _checks(spec: Spec, devices: Sequence[Device], dataset: datasets.Dataset) -> list[Check]:
    """Parameters after several float64 steps, by naive and ring, against one device; the batch splits unevenly."""

    def train(used: Sequence[Device], algorithm: str) -> list[torch.Tensor]:
        parameters = lenet_parameters(seed=spec.seed, dtype=torch.float64)
        model = ScratchDataParallel(used, parameters, lr=spec.lr, all_reduce=ALGORITHMS[algorithm])
        split = dataset.train.first(65 * spec.check_steps).to(used[0].torch)
        for images, labels in split.batches(65):
            model.step((images.double(), labels))
        for device in used:
            device.synchronize()
        return model.replicas[-1]

    reference = train(devices[:1], "naive")
    return [
        same_parameters(
            f"parameters after {spec.check_steps} steps, {name} all-reduce", train(devices, name), reference
        )
        for name in ALGORITHMS
    ]
