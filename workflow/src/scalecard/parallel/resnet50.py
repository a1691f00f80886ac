"""ResNet-50 on random images, for the experiments that cut it: the workload, its inputs, and its plain training."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from scalecard.hardware.gpu_memory import or_on_host
from scalecard.parallel.model_parallel import Given
from scalecard.workloads import reference
from scalecard.workloads.models import AFTER_LAYER2, freeze_batch_norm, resnet50_stages
from scalecard.workloads.stage_cuts import Cuts


@dataclass(frozen=True)
class Workload:
    """`batch_size` images of image_size x image_size x 3, mean squared error to one-hot labels, SGD.

    The model is cut into stages that begin with the first block and with those of `cuts`; what it computes does not
    depend on them. Ranks have the same model and different images. With `exact`, in float64 and with batch
    normalisation in eval mode: what equality is proven on. In training mode its statistics depend on how a batch is
    split, so a split batch computes a different function by definition.
    """

    batch_size: int
    image_size: int
    num_classes: int
    lr: float
    seed: int
    exact: bool = False
    rank: int = 0
    cuts: Cuts = AFTER_LAYER2
    inexact: ClassVar[bool] = False  # it computes in float64, too

    @classmethod
    def of(cls, spec: Any) -> "Workload":
        """The workload that is timed, from the values of the same names in an experiment's Spec."""
        return cls(spec.batch_size, spec.image_size, spec.num_classes, spec.lr, spec.seed)

    @classmethod
    def of_check(cls, spec: Any) -> "Workload":
        """The small one on which equality is proven: the Spec's check_batch_size and check_image_size."""
        return cls(spec.check_batch_size, spec.check_image_size, spec.num_classes, spec.lr, spec.seed, exact=True)

    @property
    def dtype(self) -> torch.dtype:
        """Of parameters and images."""
        return torch.float64 if self.exact else torch.float32

    @property
    def num_stages(self) -> int:
        """How many devices it takes."""
        return len(self.cuts) + 1

    def cut(self, cuts: Cuts) -> "Workload":
        """The same, cut elsewhere."""
        return replace(self, cuts=cuts)

    def stages(self) -> list[nn.Module]:
        """ResNet-50 cut into stages, with the same parameters each time."""
        return self._stages(None)

    def stage(self, index: int) -> nn.Module:
        """One of them."""
        (stage,) = self._stages(index)
        return stage

    def of_size(self, batch_size: int) -> "Workload":
        """The same with another batch."""
        return replace(self, batch_size=batch_size)

    def given(self, device: torch.device) -> list[Given]:
        """What each stage gets; the loss, which is next to nothing, counts as nobody's work."""
        return [Given(inputs) for inputs in stage_inputs(self, device)]

    def plain_step(self, stage: int, _device: torch.device) -> Callable[[], object]:
        """A forward and backward of one stage, on tensors without data."""
        return step_without_data(self, stage)

    def crossing(self) -> list[int]:
        """Bytes that each stage but the last hands over in one forward."""
        return [activation.nbytes for activation in activations(self)[1:]]

    def _stages(self, only: int | None) -> list[nn.Module]:
        stages = resnet50_stages(seed=self.seed, num_classes=self.num_classes, cuts=self.cuts, only=only)
        return [freeze_batch_norm(stage.double()) if self.exact else stage for stage in stages]


def one_hot_images(load: Workload, first: torch.device, last: torch.device) -> tuple[Tensor, Tensor]:
    """Images on the first stage's device, one-hot labels on the last stage's."""
    generator = torch.Generator().manual_seed(load.seed + load.rank)
    images = torch.randn(load.batch_size, 3, load.image_size, load.image_size, generator=generator)
    labels = torch.randint(load.num_classes, (load.batch_size,), generator=generator)
    targets = functional.one_hot(labels, load.num_classes)
    return images.to(first, load.dtype), targets.to(last, load.dtype)


def plain(
    load: Workload, device: torch.device, sizes: Sequence[int], num_steps: int, exactly: bool = False, ranks: int = 1
) -> reference.Plain:
    """The plain loop on one device, each step's batch forwarded in parts of these sizes.

    With `exactly`, on the same values in float64, which need twice the memory: on the CPU if the GPU has less. `ranks`
    is the number of ranks, each with a batch of its own.
    """
    trained = partial(_trained, load, sizes, num_steps, exactly, ranks)
    return or_on_host(trained, device) if exactly else trained(device)


def _trained(
    load: Workload, sizes: Sequence[int], num_steps: int, exactly: bool, ranks: int, device: torch.device
) -> reference.Plain:
    model = nn.Sequential(*load.stages()).to(device)
    batches = [one_hot_images(replace(load, rank=load.rank + rank), device, device) for rank in range(ranks)]
    images, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    parts = reference.split(images, targets, list(sizes) * ranks)
    if exactly:
        model, parts = model.double(), [part.exactly() for part in reversed(parts)]
    return reference.train(model, [parts] * num_steps, loss=reference.mean_squared_error, lr=load.lr)


def stage_inputs(load: Workload, device: torch.device) -> list[Tensor]:
    """What each stage gets in a step, the images first."""
    inputs, _ = one_hot_images(load, device, device)
    found = [inputs]
    for stage in load.stages()[:-1]:
        with torch.no_grad():
            found.append(stage.to(device)(found[-1]))
    return found


@functools.cache
def activations(load: Workload) -> list[Tensor]:
    """The same without data: shapes, and bytes."""
    return stage_inputs(load, torch.device("meta"))


def step_without_data(load: Workload, stage: int | None = None) -> Callable[[], object]:
    """The gradient of one plain step, or of one stage alone, on tensors without data: to count operations."""
    meta = torch.device("meta")
    if stage is not None:
        module, inputs = load.stage(stage).to(meta), activations(load)[stage].detach().requires_grad_(stage > 0)
        return lambda: module(inputs).sum().backward()
    model = nn.Sequential(*load.stages()).to(meta)
    images, targets = one_hot_images(load, meta, meta)
    parts = reference.split(images, targets, [load.batch_size])
    return partial(reference.gradient, model, parts, reference.mean_squared_error)


def bytes_handed_over(load: Workload) -> tuple[int, int]:
    """Bytes of a batch of images, and of all the activations that cross from stage to stage in one forward."""
    return activations(load)[0].nbytes, sum(load.crossing())
