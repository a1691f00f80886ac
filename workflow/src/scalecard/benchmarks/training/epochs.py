"""Epochs over the images of a data set: what experiments that time them are told, and how they are proven and counted.

Images are resident on the device, or read by the textbooks' DataLoader.

The textbook's concise way is here too: a module on one device or, wrapped in nn.DataParallel, on several. As timed the
plain loop forwards each device's equal share by itself, because batch normalisation sees no more.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scalecard import progress
from scalecard.benchmarks.training.one_process import data_parallel
from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.counting import count, flops
from scalecard.measuring.proof import Change, Precision, Trained, expected, training
from scalecard.measuring.spec import Common, Positive
from scalecard.parallel.trainer import Trainer
from scalecard.records.axes import Way
from scalecard.workloads import datasets, reference
from scalecard.workloads.loading import Feed, Loading, Shuffled
from scalecard.workloads.nested import sizes
from scalecard.workloads.workload import Workload

# The textbooks': d2l's get_dataloader_workers() says 4; the rest is PyTorch's default.
TEXTBOOK_LOADING = Loading(workers=4, prefetch=2, persistent=False)


@dataclass(frozen=True, kw_only=True)
class OfImages(Common):
    """The values of experiments that time whole epochs."""

    epochs: Positive
    train_images: Positive | None
    test_images: Positive | None
    check_steps: Positive

    def images(self) -> datasets.Dataset:
        """Of Fashion-MNIST, or their stand-in."""
        return datasets.load(self.dataset, Path(self.data_dir), self.train_images, self.test_images)


class Loaded(datasets.Split):
    """Images on the host, which processes read one by one and put together to batches, as the textbooks print it."""

    @cached_property
    def _one_by_one(self) -> datasets.OneByOne:
        return datasets.OneByOne(self)

    def batches(self, batch_size: int, generator: torch.Generator | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Those of resident images in the order that is drawn, bit for bit; its processes end with the last one."""
        assert generator is not None, "a loader that trains shuffles"
        feed = Feed(self._one_by_one, Shuffled(len(self), batch_size, generator), TEXTBOOK_LOADING)
        for images, labels in feed.take():
            count("loaded samples", len(labels))
            yield images, labels


@dataclass(frozen=True)
class Epoch:
    """Where an epoch is built: the workload with its batch size and learning rate, devices, and images (None: all).

    By the way "loaded" its images are, by any other they are resident.
    """

    workload: Workload
    devices: int
    num_images: int | None = None
    way: Way | None = None

    def small(self, batch_size: int, num_images: int, *, exact: bool = False) -> "Epoch":
        """The same over a few images, to prove it."""
        return replace(self, workload=replace(self.workload, batch_size=batch_size, exact=exact), num_images=num_images)

    def proven_at(self, *, each: int, check_steps: int) -> list["Epoch"]:
        """Small ones: in float64 with about `each` samples a device and a smaller last batch, and a step as timed.

        In training mode, every device needs its equal share.
        """
        even = each * self.devices
        return [self.small(even + 1, (even + 1) * check_steps - 1, exact=True), self.small(even, even)]


def epoch(
    at: Epoch,
    trainer: Trainer,
    network: nn.Module,
    where: str,
    *,
    images: datasets.Dataset,
    devices: Iterable[Any],
    ranks: int = 1,
    shares: int = 1,
    counts: Mapping[str, float] = {},
    unseen: Sequence[str] = (),
    work: Callable[[], object] | None = None,
    **more: Any,
) -> Subject:
    """A trainer's epoch, which changes the network; over few images, it is compared with the plain loop's.

    What is expected follows from these images, of which each of the `ranks` trains its part, not from the trainer. The
    plain loop forwards every batch in so many `shares`. Beside what every epoch does, `counts` are expected; what is
    `unseen` is not. `work` calls the trainer's own method, elsewhere; `more` goes to the Subject.
    """
    workload, expected_counts = at.workload, _counts(at.workload, images, ranks)

    def wanted() -> Trained | Change:
        split = partial(reference.epoch, images.train.images, images.train.labels, batch_size=workload.batch_size)
        steps = split(seed=workload.seed, dtype=Precision(exact=workload.exact).dtype, shares=shares)
        plain = partial(workload.trained, steps, images.train.labels.device)
        return expected(workload.name, plain, exact=workload.exact)

    return training(
        where,
        work or trainer.epoch,
        lambda: [*network.parameters(), *network.buffers()],
        wanted,
        times=1 if at.num_images else 0,
        steps=int(expected_counts["updates"]),
        devices=devices,
        counts={**{name: count for name, count in expected_counts.items() if name not in unseen}, **counts},
        **{"module": network, "order": trainer.order, "test": trainer.accuracy, **more},
    )


def _counts(workload: Workload, images: datasets.Dataset, ranks: int) -> dict[str, float]:
    """What a rank does in an epoch, and in the test after it."""
    batches = reference.batches(len(images.train), workload.batch_size, ranks)
    seen, (forward, whole) = sum(map(len, batches)) // ranks, map(flops, workload.without_data())
    return {
        "FLOPs": seen * whole,
        "updates": len(batches),
        "samples": seen,
        "test FLOPs": len(images.test) * forward,
    }


def concise_epoch(
    first: Device, dataset: datasets.Dataset, scored: bool, at: Epoch, *, begun: Sequence[Tensor] = ()
) -> Subject:
    """An epoch of the textbook's concise way, after which the test images are `scored`, or none.

    As timed, it goes on with a net that was trained before: `begun` are that one's parameters and buffers, of which all
    but the weights of convolutions and linear layers are kept.
    """
    workload, given = at.workload, dataset.limited(at.num_images, None)
    images = given.to(first.torch)
    module = workload.network(first.torch)
    if begun and at.num_images is None:
        _take_over(module, begun)
    wrapped = data_parallel(module, range(at.devices)) if at.devices > 1 else module
    trainer = Trainer(
        wrapped,
        replace(images, train=Loaded(given.train.images, given.train.labels)) if at.way == "loaded" else images,
        batch_size=workload.batch_size,
        lr=workload.lr,
        seed=workload.seed,
        frozen=workload.exact,
    )
    return epoch(
        at,
        trainer,
        module,
        f"an epoch on {progress.counted(at.devices, 'device')}",
        images=images,
        devices=[first],
        shares=1 if workload.exact else at.devices,
        unseen=["FLOPs", "test FLOPs"] if at.devices > 1 else [] if scored else ["test FLOPs"],  # by threads
        work=partial(first.submit, trainer.epoch),
        module=wrapped,
        test=partial(first.call, trainer.accuracy) if scored else None,
        counts={
            "loaded samples": len(images.train) if at.way == "loaded" else 0,
            **({"replicas": _replicas(workload, images, at.devices)} if at.devices > 1 else {}),
        },
    )


def _replicas(workload: Workload, images: datasets.Dataset, devices: int) -> int:
    """How many parts nn.DataParallel makes of an epoch's batches: of a batch, equal ones, but for the last."""
    batches = reference.batches(len(images.train), workload.batch_size)
    return sum(len(sizes(len(batch), -(-len(batch) // devices))) for batch in batches)


@torch.no_grad()
def _take_over(module: nn.Module, begun: Sequence[Tensor]) -> None:
    renewed = {layer.weight for layer in module.modules() if isinstance(layer, nn.Conv2d | nn.Linear)}
    for own, kept in zip([*module.parameters(), *module.buffers()], begun, strict=True):
        if own not in renewed:
            own.copy_(kept)
