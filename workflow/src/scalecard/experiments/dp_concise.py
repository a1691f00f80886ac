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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from scalecard import progress
from scalecard.benchmarks.training.wrapped_epochs import CPU_NOTE, WrappedEpoch, wrapped_epoch
from scalecard.hardware.devices import open_devices
from scalecard.hardware.machine import Machine, device_counts
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.epochs import epoch_records
from scalecard.measuring.failures import guarded
from scalecard.measuring.spec import Common, Positive, Rates, Sweep
from scalecard.measuring.stopping_rule import in_equal_parts
from scalecard.records.axes import Case
from scalecard.records.record import Record
from scalecard.workloads import datasets
from scalecard.workloads.workload import built_in


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    model: Literal["resnet18", "resnet18_quarter", "resnet18_eighth"]
    batch_sizes: Sweep
    lrs: Rates
    epochs: Positive
    train_images: Positive | None
    test_images: Positive | None
    check_steps: Positive


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Seconds of every epoch, and accuracy after it, over the grid."""
    dataset = datasets.load(spec.dataset, Path(spec.data_dir), spec.train_images, spec.test_images)
    with open_devices(machine) as devices:
        counts = device_counts(len(devices))
        usable = [1] if machine.emulated else counts
        build = partial(wrapped_epoch, devices[0], dataset, True)
        pairs = min(len(spec.batch_sizes), len(spec.lrs))
        for batch_size, lr in in_equal_parts(
            _grid(spec), label=lambda at: f"batch {at[0]}, lr {at[1]}", headline=pairs
        ):
            case: Case = {"workload": spec.model, "batch_size": batch_size, "lr": lr}
            workload = built_in(spec.model, seed=spec.seed, lr=lr, batch_size=batch_size)
            variants = [_variant(spec, build, WrappedEpoch(workload, count), dataset.name) for count in usable]
            epochs = epoch_records(variants, num_epochs=spec.epochs, devices=devices)
            yield from guarded(epochs, case, metric="epoch_time")
    for count in {*counts, 2} - {*usable}:
        note = CPU_NOTE if machine.emulated else f"needs {count} devices, this machine has {machine.num_devices}"
        yield Record.skipped({"workload": spec.model, "devices": count}, note, metric="epoch_time")


def _grid(spec: Spec) -> list[tuple[int, float]]:
    """Batch sizes with learning rates; those that grow together, as the textbook's pair does, come first."""
    numbered = itertools.product(enumerate(spec.batch_sizes), enumerate(spec.lrs))
    return [(size, lr) for (i, size), (j, lr) in sorted(numbered, key=lambda at: at[0][0] != at[1][0])]


def _variant(spec: Spec, build: Callable[[WrappedEpoch], Subject], at: WrappedEpoch, data: str) -> Variant:
    own = at.workload
    case: Case = {"workload": own.name, "devices": at.devices, "batch_size": own.batch_size, "lr": own.lr, "data": data}
    proven = replace(at, workload=replace(own, lr=spec.lrs[0]))
    return Variant(
        name=progress.counted(at.devices, "device"),
        case=case,
        build=build,
        proven_at=proven.proven_at(each=2, check_steps=spec.check_steps),
        timed_at=at,
    )
