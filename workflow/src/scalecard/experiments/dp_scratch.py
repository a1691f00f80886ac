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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
from annotated_types import Len

from scalecard import progress
from scalecard.benchmarks.training.wrapped_epochs import CPU_NOTE, WrappedEpoch, wrapped_epoch
from scalecard.hardware.devices import Device, Task, open_devices
from scalecard.hardware.machine import Machine, device_counts, provable
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.counting import count, flops
from scalecard.measuring.interleaved_timing import epoch_records, time_epochs
from scalecard.measuring.prepare import guarded
from scalecard.measuring.proof import Change, Precision, Trained, expected, same_replicas, training
from scalecard.measuring.spec import MOST_VALUES, Common, EachOnce, Positive, Rate
from scalecard.measuring.stopping_rule import in_equal_parts
from scalecard.parallel.data_parallel import Batch, ScratchDataParallel
from scalecard.parallel.scratch_allreduce import ALGORITHMS, bytes_received
from scalecard.parallel.trainer import accuracy
from scalecard.records.axes import WAYS, Case, Way
from scalecard.records.record import Record
from scalecard.records.statistics import FEWEST
from scalecard.workloads import datasets, reference
from scalecard.workloads.builtin.lenet import lenet_parameters
from scalecard.workloads.loading import Feed, Loading, Shuffled
from scalecard.workloads.workload import built_in

CHECK_BATCH = 13  # neither two, three nor four devices divide it
WAITING: tuple[Way, ...] = ("as printed", "synchronised")  # for the first device after every batch
# The textbook's: d2l's get_dataloader_workers() says 4; the rest is PyTorch's default.
AS_PRINTED = Loading(workers=4, prefetch=2, persistent=False)


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    batch_size: Positive
    lr: Rate
    epochs: Positive
    train_images: Positive | None
    test_images: Positive | None
    check_steps: Positive
    as_printed: Annotated[tuple[Positive, ...], Len(max_length=MOST_VALUES), EachOnce]


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
    dataset = datasets.load(spec.dataset, Path(spec.data_dir), spec.train_images, spec.test_images)
    counts = device_counts(machine.num_devices)
    case: Case = {"batch_size": spec.batch_size, "lr": spec.lr, "data": dataset.name}
    with open_devices(machine, max(machine.num_devices, provable(machine))) as devices:
        wanted = functools.cache(partial(_expected, spec, devices[0], dataset))
        variant = partial(_variant, spec, partial(_subject, spec, devices, dataset, wanted), case, len(devices))
        used = devices[: machine.num_devices]
        printed = [num for num in spec.as_printed if num <= len(used)]
        for num in in_equal_parts([None, *printed], label=partial(_label, len(devices)), headline=1):
            if num is None:
                epochs = epoch_records([variant(each, None) for each in counts], num_epochs=spec.epochs, devices=used)
                yield from guarded(epochs, case, metric="epoch_time")
                continue
            ways = [variant(num, way) for way in WAYS if way != "concise"]
            if num == 1 or not machine.emulated:
                ways.append(_concise(spec, dataset, devices[0], case, num))
            else:
                yield Record.skipped(_case_of(case, num, "concise"), CPU_NOTE, metric="epoch_time")
            yield from guarded(_in_turn(ways, used), _case_of(case, num), metric="epoch_time")
    for num in sorted({2, *spec.as_printed}):
        if num > machine.num_devices:
            note = f"needs {num} devices, this machine has {machine.num_devices}"
            yield Record.skipped({"devices": num}, note, metric="epoch_time")


def _in_turn(ways: Sequence[Variant], devices: Sequence[Device]) -> Iterator[Record]:
    for timing in time_epochs(ways, num_epochs=FEWEST, devices=devices):
        yield timing.record("epoch_time")


def _label(available: int, printed_on: int | None) -> str:
    if printed_on:
        return f"epochs as printed on {progress.counted(printed_on, 'device')}"
    return f"proving equality on up to {available} devices, then epochs"


def _case_of(case: Case, num_devices: int, way: Way | None = None) -> Case:
    return {"devices": num_devices, **case, **({"way": way} if way else {})}


def _concise(spec: Spec, dataset: datasets.Dataset, first: Device, case: Case, num_devices: int) -> Variant:
    """The same LeNet as a module. No device has fewer samples in a step of the proof than the hand-written one's."""
    workload = built_in("lenet", seed=spec.seed, lr=spec.lr, batch_size=spec.batch_size)
    at = WrappedEpoch(workload, num_devices)
    return Variant(
        name=f"{progress.counted(num_devices, 'device')}, concise",
        case=_case_of(case, num_devices, "concise"),
        build=partial(wrapped_epoch, first, dataset, False),
        proven_at=at.proven_at(each=CHECK_BATCH - 1, check_steps=spec.check_steps),
        timed_at=at,
    )


def _variant(
    spec: Spec, build: Callable[[Setting], Subject], case: Case, available: int, num_devices: int, way: Way | None
) -> Variant:
    return Variant(
        name=", ".join(filter(None, [progress.counted(num_devices, "device"), way])),
        case=_case_of(case, num_devices, way),
        build=build,
        proven_at=_proven_at(spec, num_devices, available, way),
        timed_at=Setting(num_devices, "naive", spec.batch_size, None, way),
    )


def _proven_at(spec: Spec, num_devices: int, available: int, way: Way | None) -> list[Setting]:
    """In float64 and as timed; of ours by both all-reduces, several devices also on three and four.

    The last batch is odd.
    """
    num_images = CHECK_BATCH * spec.check_steps - 4
    many = range(2, min(4, available) + 1) if num_devices > 1 and way is None else []
    places = [n for n in sorted({num_devices, *many}) if n <= available]
    algorithms = ["naive"] if way else ALGORITHMS
    exact = [Setting(n, name, CHECK_BATCH, num_images, way, exact=True) for n in places for name in algorithms]
    return [*exact, Setting(num_devices, "naive", CHECK_BATCH, num_images, way)]


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
    """Training on one number of devices, with its own parameters and order of images.

    As printed, processes read the images one by one, and every batch comes from the host's memory.
    """

    def __init__(self, spec: Spec, devices: Sequence[Device], dataset: datasets.Dataset, at: Setting) -> None:
        self.devices, self.batch_size, self.dtype, self.way = devices, at.batch_size, at.dtype, at.way
        images = dataset.limited(at.num_images, None)
        self.dataset = images.to(devices[0].torch)
        self.order = torch.Generator().manual_seed(spec.seed)
        parameters = lenet_parameters(seed=spec.seed, dtype=at.dtype)
        self.model = ScratchDataParallel(devices, parameters, lr=spec.lr, all_reduce=ALGORITHMS[at.algorithm])
        if at.way == "as printed":
            every = Shuffled(len(images.train), at.batch_size, self.order)
            self.feed = Feed(datasets.OneByOne(images.train), every, AS_PRINTED)

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
        for images, labels in self.feed.take():
            count("loaded samples", len(labels))
            yield images.to(self.dtype), labels

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
    used, on = devices[: at.devices], progress.counted(at.devices, "device")
    run = _Run(spec, used, dataset, at)
    num_images = len(run.dataset.train)
    steps = len(reference.batches(num_images, at.batch_size))
    values = sum(parameter.numel() for parameter in run.model.replicas[0])
    reduced, _ = bytes_received(at.algorithm, at.devices, values)
    image = 28 * 28 * at.dtype.itemsize + 8  # with its label
    forward, whole = map(flops, built_in("lenet", seed=spec.seed).without_data())
    return training(
        ", ".join(filter(None, [f"an epoch on {on}", f"{at.algorithm} all-reduce", at.way])),
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
            "loaded samples": num_images if at.way == "as printed" else 0,
            "synchronisations": steps if at.way in WAITING else 0,
            **({} if at.way else {"test FLOPs": len(run.dataset.test) * forward}),
        },
        compared=lambda: run.model.replicas[-1],
        order=run.order,
        test=None if at.way else run.test,
        after=lambda: [same_replicas(run.model.replicas)],
    )
