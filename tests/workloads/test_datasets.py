"""The stand-in is learnable, but not at once; Fashion-MNIST files are verified before they are believed."""

import gzip
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from scalecard.parallel.trainer import accuracy
from scalecard.workloads import datasets
from scalecard.workloads.builtin.lenet import lenet, lenet_parameters
from scalecard.workloads.datasets import Dataset, DataWarning, Split, load, synthetic
from torch.nn import functional
from torchvision.datasets import FashionMNIST


@pytest.fixture(scope="module")
def stand_in() -> Dataset:
    """A thirtieth of it."""
    return synthetic(num_train=2_000, num_test=500)


def test_the_stand_in_has_the_brightness_of_images(stand_in: Dataset) -> None:
    """From black to white, and neither dark nor glaring in the mean."""
    images = stand_in.train.images.float() / (255 if stand_in.train.images.dtype == torch.uint8 else 1)
    assert images.min() >= 0
    assert images.max() <= 1
    assert 0.2 < images.mean() < 0.5
    assert (images == 1).float().mean() < 0.05, "more would have no shape"


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For batches so small that several threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_stand_in_has_the_format_of_fashion_mnist(stand_in: Dataset) -> None:
    assert stand_in.train.images.shape == (2_000, 1, 28, 28)
    assert stand_in.test.images.shape == (500, 1, 28, 28)
    assert stand_in.train.images.dtype == torch.uint8
    assert stand_in.train.labels.bincount(minlength=10).min() > 150


def test_the_stand_in_has_as_many_images_as_fashion_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(patterns: torch.Tensor, count: int, generator: torch.Generator) -> Split:
        return Split(torch.empty(count, 0), torch.empty(count))

    monkeypatch.setattr(datasets, "_draw", drawn)
    loaded = load("synthetic", Path("nowhere"))
    assert (loaded.name, len(loaded.train), len(loaded.test)) == ("synthetic", 60_000, 10_000)
    few, many = load("synthetic", Path("nowhere"), 30, 20), load("synthetic", Path("nowhere"), 70_000, 70_000)
    assert (len(few.train), len(few.test)) == (30, 20)
    assert (len(many.train), len(many.test)) == (60_000, 10_000)


def test_the_stand_in_is_the_same_each_time() -> None:
    a, b = (synthetic(num_train=500, num_test=10) for _ in range(2))
    assert torch.equal(a.train.images, b.train.images)
    assert torch.equal(a.test.labels, b.test.labels)


@pytest.mark.usefixtures("one_thread")
def test_lenet_learns_the_stand_in_but_not_at_once(stand_in: Dataset) -> None:
    parameters = [p.requires_grad_() for p in lenet_parameters(seed=0)]
    order, reached = torch.Generator().manual_seed(0), []
    for _ in range(3):
        for images, labels in stand_in.train.batches(4, order):
            loss = functional.cross_entropy(lenet(images, parameters), labels)
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter -= 0.1 * gradient
        with torch.no_grad():
            images, labels = stand_in.test.batch(slice(None))
            reached.append(accuracy(lenet(images, parameters), labels))
    assert reached[0] < 0.3
    assert reached[-1] > 0.5


def test_every_image_is_in_one_batch_and_the_order_is_drawn(stand_in: Dataset) -> None:
    split = Split(stand_in.train.images[:100], torch.arange(100))
    labels = [batch[1] for batch in split.batches(32, torch.Generator().manual_seed(0))]
    assert [len(batch) for batch in labels] == [32, 32, 32, 4]
    assert sorted(torch.cat(labels).tolist()) == list(range(100))
    assert torch.cat(labels).tolist() != list(range(100))


def test_a_limited_data_set_has_the_first_images(stand_in: Dataset) -> None:
    limited = stand_in.limited(30, None)
    assert torch.equal(limited.train.labels, stand_in.train.labels[:30])
    assert len(limited.test) == len(stand_in.test)


def offline(*args: object, **kwargs: object) -> None:
    raise RuntimeError("Error downloading x.gz:\n<urlopen error no network>")


def test_auto_falls_back_with_a_warning_and_fashion_mnist_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = Split(torch.empty(0), torch.empty(0))
    monkeypatch.setattr(FashionMNIST, "download", offline)
    monkeypatch.setattr(datasets, "synthetic", lambda **_: Dataset("synthetic", empty, empty))
    with pytest.warns(DataWarning, match="no network"):
        assert load("auto", tmp_path).name == "synthetic"
    with pytest.raises(ValueError, match=r"dataset = fashion-mnist: .*no network"):
        load("fashion-mnist", tmp_path)


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
    loaded = load("auto", raw.parents[1])
    assert (loaded.name, len(loaded.train), len(loaded.test)) == ("fashion-mnist", 12, 6)
    assert loaded.train.images.shape == (12, 1, 28, 28)


@pytest.mark.parametrize("file", ["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte.gz"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-3]),
        lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x07"),
        lambda path: path.unlink(),
    ],
    ids=["truncated", "altered", "missing"],
)
def test_a_damaged_file_is_named(raw: Path, file: str, damage: Callable[[Path], object]) -> None:
    damage(raw / file)
    for name in ("auto", "fashion-mnist"):
        with pytest.raises(ValueError, match=rf"{file}: "):
            load(name, raw.parents[1])


def test_images_of_the_stand_in_are_shifted_each_by_itself() -> None:
    """Up to three pixels each way: of a single bright pixel, 49 places."""
    patterns = torch.zeros(10, 28, 28)
    patterns[:, 14, 14] = 1
    split = datasets._draw(patterns, 2000, torch.Generator().manual_seed(0))
    brightest = split.images.flatten(1).argmax(dim=1)
    places, counts = torch.unique(brightest, return_counts=True)
    often = {divmod(int(place), 28) for place, count in zip(places, counts, strict=True) if count > 8}
    assert often == {(row, column) for row in range(11, 18) for column in range(11, 18)}


def test_one_by_one_images_are_those_of_a_batch(stand_in: Dataset) -> None:
    one_by_one = datasets.OneByOne(stand_in.train.first(3))
    images, labels = stand_in.train.batch(slice(0, 3))
    assert len(one_by_one) == 3
    for place in range(3):
        image, label = one_by_one[place]
        assert torch.equal(image, images[place])
        assert label == labels[place]
