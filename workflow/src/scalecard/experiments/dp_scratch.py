"""Does data parallelism written by hand train faster on more devices, and as well?

LeNet from raw tensors on 1..N devices at the same batch and learning rate (strong scaling): seconds per epoch, and
test accuracy after each. The runs on different numbers of devices take turns, epoch by epoch. Then epochs as the
textbook prints them, with its DataLoader and a synchronisation after every batch, take turns with ours, and with ones
of ours with the latter alone: what makes up the textbook's times? The training steps are ours in all of them. A module
with PyTorch's optimizer, and nn.DataParallel on several devices, trains the same LeNet in these turns.

The answer would be wrong if more devices computed something else (an epoch is compared with a plain loop's, in float64
on up to four devices for both all-reduces, and as timed), if an epoch left out images (its operations, updates and
bytes are counted, and how often it waits for a device), or if the input path were the bottleneck (but for the epoch as
printed, the data set is resident).
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from scalecard import progress
from scalecard.benchmarks.training.epochs import Epoch, Loaded, OfImages, concise_epoch
from scalecard.benchmarks.training.one_process import ON_CPU
from scalecard.hardware.devices import Device, Task, open_devices
from scalecard.hardware.machine import Machine, device_counts, provable
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.counting import flops
from scalecard.measuring.interleaved_timing import epoch_records
from scalecard.measuring.prepare import guarded, too_few_devices
from scalecard.measuring.proof import Change, Precision, Trained, expected, same_replicas, training
from scalecard.measuring.spec import Distinct, Positive, Rate
from scalecard.measuring.stopping_rule import in_equal_parts
from scalecard.parallel.data_parallel import Batch, ScratchDataParallel
from scalecard.parallel.scratch_allreduce import ALGORITHMS, bytes_received
from scalecard.parallel.trainer import accuracy
from scalecard.records.axes import Case, Way
from scalecard.records.record import Record
from scalecard.records.statistics import FEWEST
from scalecard.workloads import datasets, reference
from scalecard.workloads.builtin.lenet import lenet_parameters
from scalecard.workloads.workload import built_in

CHECK_BATCH = 13  # neither two, three nor four devices divide it
WAITING: tuple[Way, ...] = ("as printed", "synchronised")  # for the first device after every batch
BESIDE: tuple[Way, ...] = (*WAITING, "resident")


@dataclass(frozen=True, kw_only=True)
class Spec(OfImages):
    batch_size: Positive
    lr: Rate
    as_printed: Distinct[Positive]


@dataclass(frozen=True)
class Setting(Precision):
    """Where an epoch is built: devices, all-reduce, over which images, in which precision, and which way."""

    devices: int
    algorithm: str
    batch_size: int
    num_images: int | None
    way: Way | None = None


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Seconds of every epoch, and accuracy after it, for 1..N devices; then the textbook's epochs beside ours."""
    with open_devices(machine, max(machine.num_devices, provable(machine))) as devices:
        ours, used = Epochs(spec, devices, spec.images()), devices[: machine.num_devices]
        printed = [num for num in spec.as_printed if num <= len(used)]
        for num in in_equal_parts([None, *printed], label=partial(_label, len(devices)), headline=1):
            if num is None:
                variants = [ours.variant(each) for each in device_counts(machine.num_devices)]
                epochs = epoch_records(variants, num_epochs=spec.epochs, devices=used)
            else:
                variants = [ours.variant(num, way) for way in BESIDE]
                if num == 1 or not machine.emulated:
                    variants.append(ours.concise(num))
                else:
                    yield Record.skipped(ours.case(num, "concise"), ON_CPU, metric="epoch_time")
                epochs = epoch_records(variants, scored=False, num_epochs=FEWEST, devices=used)
            yield from guarded(epochs, ours.case(num), metric="epoch_time")
    for num in sorted({2, *spec.as_printed}):
        yield from too_few_devices({"devices": num}, machine, needed=num, metric="epoch_time")


def _label(available: int, printed_on: int | None) -> str:
    if printed_on:
        return f"epochs as printed on {progress.counted(printed_on, 'device')}"
    return f"proving equality on up to {available} devices, then epochs"


class Epochs:
    """Epochs on the first of these devices, and what the plain loop does in them."""

    def __init__(self, spec: Spec, devices: Sequence[Device], dataset: datasets.Dataset) -> None:
        self.spec, self.devices, self.dataset = spec, devices, dataset
        self.expected = functools.cache(self._expected)
        self.build = partial(self._subject)  # one object: what one builder makes of a setting is proven once

    def case(self, num_devices: int | None, way: Way | None = None) -> Case:
        settings: Case = {"batch_size": self.spec.batch_size, "lr": self.spec.lr, "data": self.dataset.name}
        return {**({"devices": num_devices} if num_devices else {}), **settings, **({"way": way} if way else {})}

    def concise(self, num_devices: int) -> Variant:
        """The same LeNet as a module. No device has fewer samples in a proof's step than the hand-written one's."""
        workload = built_in("lenet", seed=self.spec.seed, lr=self.spec.lr, batch_size=self.spec.batch_size)
        at = Epoch(workload, num_devices)
        return Variant(
            name=f"{progress.counted(num_devices, 'device')}, concise",
            case=self.case(num_devices, "concise"),
            build=partial(concise_epoch, self.devices[0], self.dataset, False),
            proven_at=at.proven_at(each=CHECK_BATCH - 1, check_steps=self.spec.check_steps),
            timed_at=at,
        )

    def variant(self, num_devices: int, way: Way | None = None) -> Variant:
        """Proven in float64 and as timed; ours by both all-reduces, several devices also on three and four.

        The last batch is odd.
        """
        small = partial(Setting, batch_size=CHECK_BATCH, num_images=CHECK_BATCH * self.spec.check_steps - 4, way=way)
        many = range(2, min(4, len(self.devices)) + 1) if num_devices > 1 and way is None else []
        places = [n for n in sorted({num_devices, *many}) if n <= len(self.devices)]
        exact = [small(n, name, exact=True) for n in places for name in (["naive"] if way else ALGORITHMS)]
        return Variant(
            name=", ".join(filter(None, [progress.counted(num_devices, "device"), way])),
            case=self.case(num_devices, way),
            build=self.build,
            proven_at=[*exact, small(num_devices, "naive")],
            timed_at=Setting(num_devices, "naive", self.spec.batch_size, None, way),
        )

    def _expected(self, batch_size: int, num_images: int, shares: int, exact: bool) -> Trained | Change:
        """An epoch of the plain loop on one device, each batch in so many shares: cuDNN chooses algorithms by size."""
        spec, device = self.spec, self.devices[0].torch
        first = self.dataset.train.first(num_images).to(device)
        batches = partial(reference.epoch, first.images, first.labels, batch_size=batch_size, seed=spec.seed)
        steps = batches(dtype=Precision(exact=exact).dtype, shares=shares, uneven=True)
        workload = built_in("lenet", seed=spec.seed, lr=spec.lr, exact=exact)
        return expected("lenet", partial(workload.trained, steps, device), exact=exact)

    def _subject(self, at: Setting) -> Subject:
        used, on = self.devices[: at.devices], progress.counted(at.devices, "device")
        images = self.dataset.limited(at.num_images, None)
        run, num_images = _Run(self.spec, used, images, at), len(images.train)
        steps = len(reference.batches(num_images, at.batch_size))
        values = sum(parameter.numel() for parameter in lenet_parameters(seed=self.spec.seed, dtype=at.dtype))
        reduced, _ = bytes_received(at.algorithm, at.devices, values)
        image = 28 * 28 * at.dtype.itemsize + 8  # with its label
        forward, whole = map(flops, built_in("lenet", seed=self.spec.seed).without_data())
        return training(
            ", ".join(filter(None, [f"an epoch on {on}", f"{at.algorithm} all-reduce", at.way])),
            run.epoch,
            lambda: [parameter for replica in run.model.replicas for parameter in replica],
            partial(self.expected, at.batch_size, num_images, 1 if at.exact else at.devices, at.exact),
            times=1 if at.num_images else 0,
            steps=steps,
            devices=used,
            counts={
                "FLOPs": num_images * whole,
                "updates": steps,
                "received bytes": num_images * image + steps * reduced * at.dtype.itemsize // 4,
                "loaded samples": num_images if at.way == "as printed" else 0,
                "synchronisations": steps if at.way in WAITING else 0,
                **({} if at.way else {"test FLOPs": len(images.test) * forward}),
            },
            compared=lambda: run.model.replicas[-1],
            order=run.order,
            test=None if at.way else run.test,
            after=lambda: [same_replicas(run.model.replicas)],
        )


class _Run:
    """Training on one number of devices, with its own parameters and order of images.

    As printed, processes read the images one by one, and every batch comes from the host's memory.
    """

    def __init__(self, spec: Spec, devices: Sequence[Device], images: datasets.Dataset, at: Setting) -> None:
        self.devices, self.batch_size, self.dtype, self.way = devices, at.batch_size, at.dtype, at.way
        self.dataset = images.to(devices[0].torch)
        self.order = torch.Generator().manual_seed(spec.seed)
        parameters = lenet_parameters(seed=spec.seed, dtype=at.dtype)
        self.model = ScratchDataParallel(devices, parameters, lr=spec.lr, all_reduce=ALGORITHMS[at.algorithm])
        self.loaded = Loaded(images.train.images, images.train.labels)

    def epoch(self) -> None:
        for batch in self._read() if self.way == "as printed" else self._resident():
            self.model.step(batch)
            if self.way in WAITING:
                self.devices[0].synchronize()  # torch.cuda.synchronize() waits for the first device alone

    def _resident(self) -> Iterator[Task]:
        train = self.dataset.train
        order = torch.randperm(len(train), generator=self.order).to(train.labels.device)
        for index in order.split(self.batch_size):
            yield self.devices[0].submit(train.batch, index, self.dtype)

    def _read(self) -> Iterator[Batch]:
        for images, labels in self.loaded.batches(self.batch_size, self.order):
            yield images.to(self.dtype), labels

    def test(self) -> float:
        test = self.dataset.test
        scores = [self.model.scores(images) for images, _ in test.batches(1000)]
        return accuracy(torch.cat(scores), test.labels)
