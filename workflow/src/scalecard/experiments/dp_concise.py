"""What does nn.DataParallel bring, and is it the devices that cost the textbook's pair its accuracy?

The ResNet-18 variant over the whole grid of batch size, learning rate and number of devices. The textbook compares
one device at batch 256, lr 0.1 with two at batch 512, lr 0.2 (weak scaling); the grid also has one device at 512 and
0.2, to separate the effect of the devices from that of batch size and learning rate.

The answer would be wrong if DataParallel computed something else (an epoch is compared with a plain loop's, in float64
with batch normalisation in eval mode because per-device statistics are a different function, and as timed), if an epoch
left out images (they are counted), or if it were a silent no-op, as it is on a CPU, where it is skipped.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from torch import nn

from scalecard import progress
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine, device_counts
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.counting import flops
from scalecard.measuring.epochs import epoch_records
from scalecard.measuring.failures import guarded
from scalecard.measuring.proof import Change, Trained, expected
from scalecard.measuring.spec import Common, Positive, Rates, Sweep
from scalecard.measuring.stopping_rule import in_equal_parts
from scalecard.measuring.training_subject import Precision, training
from scalecard.parallel.trainer import Trainer
from scalecard.records.axes import Case
from scalecard.records.record import Record
from scalecard.workloads import datasets, reference
from scalecard.workloads.workload import Workload, built_in

CPU_NOTE = "nn.DataParallel is a silent no-op on a CPU: it would time the single device again"


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    model: Literal["resnet18", "resnet18_quarter", "resnet18_eighth"]
    batch_sizes: Sweep
    lrs: Rates
    epochs: Positive
    train_images: Positive | None
    test_images: Positive | None
    check_steps: Positive


@dataclass(frozen=True)
class Setting(Precision):
    """Where an epoch is built: devices, batch, learning rate, images (None: all), and the precision."""

    devices: int
    batch_size: int
    lr: float
    num_images: int | None = None


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Seconds of every epoch, and accuracy after it, over the grid."""
    dataset = datasets.load(spec.dataset, Path(spec.data_dir), spec.train_images, spec.test_images)
    with open_devices(machine) as devices:
        counts = device_counts(len(devices))
        usable = [1] if machine.emulated else counts
        build = partial(_epoch, spec, devices[0], dataset)
        pairs = min(len(spec.batch_sizes), len(spec.lrs))
        for batch_size, lr in in_equal_parts(
            _grid(spec), label=lambda at: f"batch {at[0]}, lr {at[1]}", headline=pairs
        ):
            case: Case = {"workload": spec.model, "batch_size": batch_size, "lr": lr}
            variants = [_variant(spec, build, Setting(count, batch_size, lr), dataset.name) for count in usable]
            epochs = epoch_records(variants, num_epochs=spec.epochs, devices=devices)
            yield from guarded(epochs, case, metric="epoch_time")
    for count in {*counts, 2} - {*usable}:
        note = CPU_NOTE if machine.emulated else f"needs {count} devices, this machine has {machine.num_devices}"
        yield Record.skipped({"workload": spec.model, "devices": count}, note, metric="epoch_time")


def _grid(spec: Spec) -> list[tuple[int, float]]:
    """Batch sizes with learning rates; those that grow together, as the textbook's pair does, come first."""
    numbered = itertools.product(enumerate(spec.batch_sizes), enumerate(spec.lrs))
    return [(size, lr) for (i, size), (j, lr) in sorted(numbered, key=lambda at: at[0][0] != at[1][0])]


def _variant(spec: Spec, build: Callable[[Setting], Subject], at: Setting, data: str) -> Variant:
    count, lr = at.devices, spec.lrs[0]
    odd, even = 2 * count + 1, 2 * count  # in training mode, every device needs its equal share
    return Variant(
        name=progress.counted(count, "device"),
        case={"workload": spec.model, "devices": count, "batch_size": at.batch_size, "lr": at.lr, "data": data},
        build=build,
        proven_at=[Setting(count, odd, lr, odd * spec.check_steps - 1, exact=True), Setting(count, even, lr, even)],
        timed_at=at,
    )


def _epoch(spec: Spec, first: Device, dataset: datasets.Dataset, at: Setting) -> Subject:
    images = dataset.limited(at.num_images, None).to(first.torch)
    workload = built_in(spec.model, seed=spec.seed, lr=at.lr, exact=at.exact)
    module = workload.network(first.torch)
    wrapped = nn.DataParallel(module, device_ids=list(range(at.devices))) if at.devices > 1 else module
    trainer = Trainer(wrapped, images, at.batch_size, at.lr, spec.seed, frozen=at.exact)
    forward, whole = map(flops, workload.without_data())
    seen, steps = len(images.train), len(reference.batches(len(images.train), at.batch_size))
    counts: dict[str, float] = {"updates": steps, "samples": seen}
    if at.devices == 1:  # DataParallel's threads are not seen
        counts |= {"FLOPs": seen * whole, "test FLOPs": len(images.test) * forward}
    return training(
        f"an epoch on {progress.counted(at.devices, 'device')}",
        partial(first.submit, trainer.epoch),
        lambda: [*module.parameters(), *module.buffers()],
        partial(_expected, spec, first, images.train, workload, at),
        times=1 if at.num_images else 0,
        steps=steps,
        devices=[first],
        counts=counts,
        module=wrapped,
        order=trainer.order,
        test=partial(first.call, trainer.accuracy),
    )


def _expected(spec: Spec, first: Device, train: datasets.Split, workload: Workload, at: Setting) -> Trained | Change:
    """An epoch of the plain loop; in training mode, devices normalise their own shares."""
    shares = 1 if at.exact else at.devices
    split = partial(reference.epoch, train.images, train.labels, batch_size=at.batch_size, seed=spec.seed)
    steps = split(dtype=at.dtype, shares=shares)
    return expected(spec.model, partial(workload.trained, steps, first.torch), exact=at.exact)
