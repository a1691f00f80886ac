"""Fashion-MNIST, or a learnable stand-in for machines without internet; resident on the device as uint8.

A batch is an index into the resident set, `images[order[i:i+B]].float() / 255`: with images this small, a
DataLoader would dominate the measurement.
"""

import gzip
import hashlib
import os
import socket
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import Dataset as MapStyle

from scalecard import progress

DatasetName = Literal["fashion-mnist", "synthetic"]
NUM_CLASSES, SIDE, NUM_TRAIN, NUM_TEST = 10, 28, 60_000, 10_000
DOWNLOAD_TIMEOUT = 20.0


class DataWarning(UserWarning):
    """Something about the data that every reader of the result must know."""


@dataclass(frozen=True)
class Split:
    """images: uint8 (n, 1, 28, 28); labels: int64 (n,)."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int | None) -> "Split":
        """The first `count` images; None means all of them."""
        return Split(self.images[:count], self.labels[:count])

    def to(self, device: torch.device) -> "Split":
        return Split(self.images.to(device), self.labels.to(device))

    def batch(self, index: Tensor | slice, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """Images in 0..1, rounded to float32, and labels, on the split's device."""
        return self.images[index].float().div_(255).to(dtype), self.labels[index]

    def batches(self, batch_size: int, generator: torch.Generator | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches in an order drawn from a CPU generator, or in file order; a smaller last batch is kept."""
        order = None if generator is None else torch.randperm(len(self), generator=generator).to(self.labels.device)
        for start in range(0, len(self), batch_size):
            stop = start + batch_size
            yield self.batch(slice(start, stop) if order is None else order[start:stop])


class OneByOne(MapStyle[tuple[Tensor, int]]):
    """An image at a time through PIL and ToTensor, as torchvision gives those of Fashion-MNIST to a DataLoader."""

    def __init__(self, split: Split) -> None:
        from PIL import Image  # here, because torchvision takes two seconds that not everybody needs
        from torchvision.transforms import ToTensor

        self.images, self.labels = split.images[:, 0].numpy(), split.labels.tolist()
        self.picture, self.transform = Image.fromarray, ToTensor()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.picture(self.images[index])), self.labels[index]


@dataclass(frozen=True)
class Dataset:
    """Training and test images; `name` says whether they are real or the stand-in."""

    name: DatasetName
    train: Split
    test: Split

    def limited(self, train_images: int | None, test_images: int | None) -> "Dataset":
        """The first images of each split; None means all of them."""
        return Dataset(self.name, self.train.first(train_images), self.test.first(test_images))

    def to(self, device: torch.device) -> "Dataset":
        return Dataset(self.name, self.train.to(device), self.test.to(device))


def load(name: str, root: Path, train_images: int | None = None, test_images: int | None = None) -> Dataset:
    """'fashion-mnist', 'synthetic', or 'auto': the first or, with a DataWarning, the second if there is no network.

    `train_images` and `test_images` limit the splits; None is all. ValueError names a file that is missing, truncated
    or altered.
    """
    num_train, num_test = min(train_images or NUM_TRAIN, NUM_TRAIN), min(test_images or NUM_TEST, NUM_TEST)
    stand_in = partial(synthetic, num_train=num_train, num_test=num_test)  # drawing all of them takes seconds
    if name == "synthetic":
        return stand_in()
    folder = root / "FashionMNIST"
    if not folder.exists():
        try:
            _download(root)
        except (RuntimeError, OSError) as error:
            if not folder.exists():  # no other job was faster
                reason = str(error).strip().splitlines()[-1].strip("<>")
                if name == "fashion-mnist":
                    raise ValueError(f"dataset = {name}: it cannot be downloaded to {root} ({reason})") from error
                message = f"Fashion-MNIST cannot be downloaded ({reason}): synthetic stand-in images are used instead"
                warnings.warn(message, DataWarning, stacklevel=2)
                return stand_in()
    return fashion_mnist(root).limited(train_images, test_images)


def _download(root: Path) -> None:
    progress.say(f"downloading Fashion-MNIST to {root}")
    from torchvision.datasets import FashionMNIST  # two seconds that not everybody needs

    previous = socket.getdefaulttimeout()
    socket.setdefaulttimeout(DOWNLOAD_TIMEOUT)
    root.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=root) as partial:  # a killed download never looks complete
            FashionMNIST(partial, download=True)
            os.replace(Path(partial, "FashionMNIST"), root / "FashionMNIST")
    finally:
        socket.setdefaulttimeout(previous)


def fashion_mnist(root: Path) -> Dataset:
    """Read what torchvision downloaded, after verifying it against the published MD5 sums of its archives."""
    from torchvision.datasets import FashionMNIST

    for archive, md5 in FashionMNIST.resources:
        _verify(root / "FashionMNIST" / "raw" / archive, md5)
    splits = [FashionMNIST(str(root), train=train) for train in (True, False)]
    train, test = (Split(s.data.unsqueeze(1), s.targets) for s in splits)
    return Dataset("fashion-mnist", train, test)


def _verify(archive: Path, md5: str) -> None:
    raw = archive.with_suffix("")
    for path in (archive, raw):
        if not path.exists():
            raise ValueError(f"{path}: missing. Remove the folder {archive.parents[1]} to download it again")
    packed = archive.read_bytes()
    if hashlib.md5(packed, usedforsecurity=False).hexdigest() != md5:
        raise ValueError(f"{archive}: truncated or altered (MD5 is not {md5}). Remove {archive.parents[1]}")
    if gzip.decompress(packed) != raw.read_bytes():
        raise ValueError(
            f"{raw}: truncated or altered, it differs from the content of {archive.name}. Remove {archive.parents[1]}"
        )


def synthetic(seed: int = 0, num_train: int = NUM_TRAIN, num_test: int = NUM_TEST) -> Dataset:
    """Ten smooth patterns of different brightness on black, each shifted, mixed with another class's, and noisy.

    Deterministic. LeNet learns it, but only after the same plateau that its small initial weights cause on
    Fashion-MNIST.
    """
    progress.say("making synthetic images")
    generator = torch.Generator().manual_seed(seed)
    brightness = torch.linspace(-1.2, 1.2, NUM_CLASSES)[torch.randperm(NUM_CLASSES, generator=generator)]
    coarse = torch.randn(NUM_CLASSES, 1, 7, 7, generator=generator) + brightness[:, None, None, None]
    patterns = interpolate(coarse, size=(SIDE, SIDE), mode="bicubic", align_corners=False)[:, 0].clamp(0, 2) / 2
    train, test = (_draw(patterns, count, generator) for count in (num_train, num_test))
    return Dataset("synthetic", train, test)


def _draw(patterns: Tensor, count: int, generator: torch.Generator, max_shift: int = 3) -> Split:
    def uniform(low: float, high: float) -> Tensor:
        return torch.rand(count, 1, 1, generator=generator) * (high - low) + low

    labels, others = torch.randint(NUM_CLASSES, (2, count, 1, 1), generator=generator)
    shifts = torch.randint(-max_shift, max_shift + 1, (2, count, 1), generator=generator)
    rows, columns = ((torch.arange(SIDE) + shift) % SIDE for shift in shifts)
    shift = (rows[:, :, None], columns[:, None, :])
    images = uniform(0.6, 1.0) * patterns[labels, *shift] + uniform(0.0, 0.5) * patterns[others, *shift]
    images += torch.randn(count, SIDE, SIDE, generator=generator) * 0.25
    return Split((images * 255).clamp_(0, 255).to(torch.uint8).unsqueeze(1), labels.flatten())


def shard(train: Split, batch_size: int, rank: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The batch of one rank: ranks take consecutive images, starting over where the data set ends."""
    index = torch.arange(rank * batch_size, (rank + 1) * batch_size, device=train.labels.device) % len(train)
    return train.batch(index, dtype)
