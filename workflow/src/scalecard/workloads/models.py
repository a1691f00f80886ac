"""The textbooks' models: drawn from a seed, copied, in stages, and as classifiers that are trained plainly."""

import copy
import functools
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from scalecard.workloads import reference
from scalecard.workloads.builtin import lenet, resnet18
from scalecard.workloads.builtin.lenet import LeNet


def resnet18_variant(*, seed: int) -> nn.Module:
    """The textbook's ResNet-18."""
    return copy.deepcopy(_drawn(resnet18.model, seed))


@functools.cache
def _drawn(model: Callable[..., nn.Module], seed: int, **values: int) -> nn.Module:
    """Drawing millions of parameters takes longer than copying them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model(**values)


MODELS = {"lenet": LeNet, "resnet18": resnet18_variant}


def freeze_batch_norm(model: nn.Module) -> nn.Module:
    """Put batch normalisation into eval mode.

    In training mode its statistics depend on how a batch is split, so a split batch computes a different function by
    definition; the equality proofs are about the parallelism and use this.
    """
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.eval()
    return model


def network(name: str, *, seed: int, device: torch.device, exact: bool) -> nn.Module:
    """The model as timed or, with `exact`, in float64 and with batch normalisation in eval mode."""
    module = MODELS[name](seed=seed).to(device).train()
    return freeze_batch_norm(module.double()) if exact else module


def random_batch(count: int, *, seed: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Images (count, 1, 28, 28) in 0..1 and labels (count,) of ten classes; a seed gives the same on any device."""
    images, labels = lenet.batch(count, seed)
    return images.to(device, dtype), labels.to(device)


def plain(
    name: str,
    steps: Sequence[reference.Step],
    *,
    seed: int,
    device: torch.device,
    lr: float,
    exact: bool,
    exactly: bool = False,
) -> reference.Plain:
    """The plain loop over these steps; with `exactly`, over the same values in float64 and in the opposite order."""
    module = network(name, seed=seed, device=device, exact=exact)
    if exactly:
        module, steps = module.double(), [[part.exactly() for part in reversed(parts)] for parts in steps]
    return reference.train(module, steps, loss=reference.cross_entropy, lr=lr)


@functools.cache
def without_data(name: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """Scoring one image, and the gradient of training on one, on tensors without data: to count operations."""
    module = MODELS[name](seed=0).to("meta").train()
    images, labels = torch.zeros(1, 1, 28, 28, device="meta"), torch.zeros(1, dtype=torch.int64, device="meta")
    parts = reference.split(images, labels, [1])
    return partial(module, images), partial(reference.gradient, module, parts, reference.cross_entropy)
