"""The stand-in is learnable, but not at once; Fashion-MNIST files are verified before they are believed."""

import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from scalecard import data
from scalecard.models import lenet, lenet_parameters
from scalecard.training import accuracy
from torch.nn import functional
from torchvision.datasets import FashionMNIST


@pytest.fixture(scope="module")
def synthetic() -> data.Dataset:
    return data.synthetic()


def test_the_stand_in_has_the_shape_of_fashion_mnist(synthetic: data.Dataset) -> None:
    assert synthetic.train.images.shape == (60_000, 1, 28, 28)
    assert synthetic.test.images.shape == (10_000, 1, 28, 28)
    assert synthetic.train.images.dtype == torch.uint8
    assert synthetic.train.labels.bincount().min() > 5_500


def test_the_stand_in_is_the_same_each_time() -> None:
    a, b = (data.synthetic(num_train=500, num_test=10) for _ in range(2))
    assert torch.equal(a.train.images, b.train.images)
    assert torch.equal(a.test.labels, b.test.labels)


def test_lenet_learns_the_stand_in_but_not_at_once(synthetic: data.Dataset) -> None:
    train, test = synthetic.train.first(8_000), synthetic.test.first(1_000)
    parameters = [p.requires_grad_() for p in lenet_parameters(seed=0)]
    order, reached = torch.Generator().manual_seed(0), []
    for _ in range(6):
        for images, labels in train.batches(64, order):
            loss = functional.cross_entropy(lenet(images, parameters), labels)
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter -= 0.2 * gradient
        with torch.no_grad():
            reached.append(accuracy(lenet(test.batch(slice(None))[0], parameters), test.labels))
    assert reached[0] < 0.3
    assert reached[-1] > 0.7


def test_every_image_is_in_one_batch_and_the_order_is_drawn(synthetic: data.Dataset) -> None:
    split = data.Split(synthetic.train.images[:100], torch.arange(100))
    labels = [batch[1] for batch in split.batches(32, torch.Generator().manual_seed(0))]
    assert [len(batch) for batch in labels] == [32, 32, 32, 4]
    assert sorted(torch.cat(labels).tolist()) == list(range(100))
    assert torch.cat(labels).tolist() != list(range(100))


def offline(*args: object, **kwargs: object) -> None:
    raise RuntimeError("Error downloading x.gz:\n<urlopen error no network>")


def test_auto_falls_back_with_a_warning_and_fashion_mnist_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FashionMNIST, "download", offline)
    monkeypatch.setattr(data, "synthetic", lambda: data.Dataset("synthetic", None, None))  # type: ignore[arg-type]
    with pytest.warns(data.DataWarning, match="no network"):
        assert data.load("auto", tmp_path).name == "synthetic"
    with pytest.raises(ValueError, match="dataset = fashion-mnist: it cannot be downloaded"):
        data.load("fashion-mnist", tmp_path)


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny data set in the real format, with the MD5 sums that its archives have."""
    folder = tmp_path / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    resources = []
    for name, count in (("train", 12), ("t10k", 6)):
        images = (0x803).to_bytes(4, "big") + b"".join(n.to_bytes(4, "big") for n in (count, 28, 28))
        labels = (0x801).to_bytes(4, "big") + count.to_bytes(4, "big")
        for kind, content in (("images-idx3", images + bytes(count * 784)), ("labels-idx1", labels + bytes(count))):
            packed = gzip.compress(content, mtime=0)
            (folder / f"{name}-{kind}-ubyte").write_bytes(content)
            (folder / f"{name}-{kind}-ubyte.gz").write_bytes(packed)
            resources.append((f"{name}-{kind}-ubyte.gz", hashlib.md5(packed).hexdigest()))
    monkeypatch.setattr(FashionMNIST, "resources", resources)
    return folder


def test_verified_files_are_loaded(raw: Path) -> None:
    loaded = data.load("auto", raw.parents[1])
    assert (loaded.name, len(loaded.train), len(loaded.test)) == ("fashion-mnist", 12, 6)
    assert loaded.train.images.shape == (12, 1, 28, 28)


@pytest.mark.parametrize("file", ["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte.gz"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-3]),
        lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x07"),
    ],
    ids=["truncated", "altered"],
)
def test_a_damaged_file_is_named(raw: Path, file: str, damage: Callable[[Path], object]) -> None:
    damage(raw / file)
    with pytest.raises(ValueError, match=file):
        data.load("auto", raw.parents[1])


def test_a_missing_archive_is_named(raw: Path) -> None:
    (raw / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte\.gz: missing"):
        data.load("fashion-mnist", raw.parents[1])
