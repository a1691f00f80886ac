"""Does data parallelism written by hand train faster on more devices, and as well?

LeNet from raw tensors on 1..N devices at the same batch and learning rate (strong scaling): seconds per epoch, and
test accuracy after each. The runs on different numbers of devices take turns, epoch by epoch.

The answer would be wrong if more devices computed something else (an epoch is compared with a plain loop's, in float64
on up to four devices for both all-reduces, and as timed), if an epoch left out images (its operations, updates and
bytes are counted), or if the input path were the bottleneck (the data set is resident).
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from scalecard import progress
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine, device_counts, provable
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.counting import flops
from scalecard.measuring.epochs import epoch_records
from scalecard.measuring.failures import guarded
from scalecard.measuring.proof import Change, Trained, expected, same_replicas
from scalecard.measuring.spec import Common, Positive, Rate
from scalecard.measuring.training_subject import Precision, training
from scalecard.parallel.data_parallel import ScratchDataParallel
from scalecard.parallel.scratch_allreduce import ALGORITHMS, bytes_received
from scalecard.parallel.trainer import accuracy
from scalecard.records.axes import Case
from scalecard.records.record import Record
from scalecard.workloads import datasets, reference
from scalecard.workloads.builtin.lenet import lenet_parameters
from scalecard.workloads.workload import built_in

CHECK_BATCH = 13  # neither two, three nor four devices divide it


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    batch_size: Positive
    lr: Rate
    epochs: Positive
    train_images: Positive | None
    test_images: Positive | None
    check_steps: Positive


@dataclass(frozen=True)
class Setting(Precision):
    """Where an epoch is built: on how many devices, by which all-reduce, over which images, in which precision."""

    devices: int
    algorithm: str
    batch_size: int
    num_images: int | None


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Seconds of every epoch, and accuracy after it, for 1..N devices."""
    dataset = datasets.load(spec.dataset, Path(spec.data_dir), spec.train_images, spec.test_images)
    counts = device_counts(machine.num_devices)
    case: Case = {"batch_size": spec.batch_size, "lr": spec.lr, "data": dataset.name}
    with open_devices(machine, max(machine.num_devices, provable(machine))) as devices:
        wanted = functools.cache(partial(_expected, spec, devices[0], dataset))
        build = partial(_subject, spec, devices, dataset, wanted)
        variants = [
            Variant(
                name=progress.counted(count, "device"),
                case={"devices": count, **case},
                build=build,
                proven_at=_proven_at(spec, count, len(devices)),
                timed_at=Setting(count, "naive", spec.batch_size, None),
            )
            for count in counts
        ]
        progress.doing(f"proving equality on up to {len(devices)} devices, then epochs")
        used = devices[: machine.num_devices]
        epochs = epoch_records(variants, num_epochs=spec.epochs, devices=used)
        yield from guarded(epochs, case, metric="epoch_time")
    if machine.num_devices == 1:
        yield Record.skipped({"devices": 2}, "needs 2 devices, this machine has 1", metric="epoch_time")


def _proven_at(spec: Spec, count: int, available: int) -> list[Setting]:
    """In float64 by both all-reduces, several devices also on three and four; and as timed. The last batch is odd."""
    num_images = CHECK_BATCH * spec.check_steps - 4
    many = range(2, min(4, available) + 1) if count > 1 else []
    places = [n for n in sorted({count, *many}) if n <= available]
    exact = [Setting(n, algorithm, CHECK_BATCH, num_images, exact=True) for n in places for algorithm in ALGORITHMS]
    return [*exact, Setting(count, "naive", CHECK_BATCH, num_images)]


def _expected(
    spec: Spec, device: Device, dataset: datasets.Dataset, batch_size: int, num_images: int, shares: int, exact: bool
) -> Trained | Change:
    """An epoch of the plain loop on one device, each batch in so many shares: cuDNN chooses algorithms by size."""
    first = dataset.train.first(num_images).to(device.torch)
    batches = partial(reference.epoch, first.images, first.labels, batch_size=batch_size, seed=spec.seed)
    steps = batches(dtype=Precision(exact=exact).dtype, shares=shares, uneven=True)
    workload = built_in("lenet", seed=spec.seed, lr=spec.lr, exact=exact)
    return expected("lenet", partial(workload.trained, steps, device.torch), exact=exact)


class _Run:
    """Training on one number of devices, with its own parameters and order of images."""

    def __init__(self, spec: Spec, devices: Sequence[Device], dataset: datasets.Dataset, at: Setting) -> None:
        self.devices, self.batch_size, self.dtype = devices, at.batch_size, at.dtype
        self.dataset = dataset.limited(at.num_images, None).to(devices[0].torch)
        self.order = torch.Generator().manual_seed(spec.seed)
        parameters = lenet_parameters(seed=spec.seed, dtype=at.dtype)
        self.model = ScratchDataParallel(devices, parameters, lr=spec.lr, all_reduce=ALGORITHMS[at.algorithm])

    def epoch(self) -> None:
        train = self.dataset.train
        order = torch.randperm(len(train), generator=self.order).to(train.labels.device)
        for index in order.split(self.batch_size):
            self.model.step(self.devices[0].submit(train.batch, index, self.dtype))

    def test(self) -> float:
        test = self.dataset.test
        scores = [self.model.scores(images) for images, _ in test.batches(1000)]
        return accuracy(torch.cat(scores), test.labels)


def _subject(
    spec: Spec,
    devices: Sequence[Device],
    dataset: datasets.Dataset,
    wanted: Callable[[int, int, int, bool], Trained | Change],
    at: Setting,
) -> Subject:
    used = devices[: at.devices]
    run = _Run(spec, used, dataset, at)
    num_images = len(run.dataset.train)
    steps = len(reference.batches(num_images, at.batch_size))
    values = sum(parameter.numel() for parameter in run.model.replicas[0])
    reduced, _ = bytes_received(at.algorithm, at.devices, values)
    image = 28 * 28 * at.dtype.itemsize + 8  # with its label
    forward, whole = map(flops, built_in("lenet", seed=spec.seed).without_data())
    return training(
        f"an epoch on {progress.counted(at.devices, 'device')}, {at.algorithm} all-reduce",
        run.epoch,
        lambda: [parameter for replica in run.model.replicas for parameter in replica],
        partial(wanted, at.batch_size, num_images, 1 if at.exact else at.devices, at.exact),
        times=1 if at.num_images else 0,
        steps=steps,
        devices=used,
        counts={
            "FLOPs": num_images * whole,
            "updates": steps,
            "received bytes": num_images * image + steps * reduced * at.dtype.itemsize // 4,
            "test FLOPs": len(run.dataset.test) * forward,
        },
        compared=lambda: run.model.replicas[-1],
        order=run.order,
        test=run.test,
        after=lambda: [same_replicas(run.model.replicas)],
    )
