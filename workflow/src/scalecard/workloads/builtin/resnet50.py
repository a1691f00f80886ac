"""torchvision's ResNet-50 on random images, and a shorter and narrower one, for machines without GPUs."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from scalecard.workloads.builtin.images import Pictures
from scalecard.workloads.builtin.resnet18 import blocks as blocks
from scalecard.workloads.builtin.resnet18 import narrowed
from scalecard.workloads.nested import at_least_float32


def model(*, num_classes: int = 1000) -> nn.Module:
    from torchvision.models import resnet50  # two seconds that not everybody needs

    made: nn.Module = resnet50(num_classes=num_classes)
    return made


def resnet26_quarter(*, num_classes: int = 1000) -> nn.Module:
    """26 layers with a quarter of the channels: the same four layers to cut, initialised as torchvision's ResNet-50.

    Each layer has two of ResNet-50's bottlenecks instead of three to six, which saves almost half of a step's time.
    """
    from torchvision.models.resnet import Bottleneck, ResNet

    made = narrowed(partial(ResNet, Bottleneck, [2, 2, 2, 2], num_classes=num_classes), 4)
    for layer in made.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return made


def batch(
    size: int, seed: int, *, image_size: int = 224, num_classes: int = 1000, one_hot: bool = False
) -> tuple[Tensor, Tensor]:
    """(size, 3, image_size, image_size) normal images, and their labels or, as in the tutorial, one-hot vectors."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(size, 3, image_size, image_size, generator=generator)
    labels = torch.randint(num_classes, (size,), generator=generator)
    return images, functional.one_hot(labels, num_classes).float() if one_hot else labels


def dataset(*, image_size: int = 224, num_classes: int = 1000) -> Pictures:
    return Pictures(channels=3, size=image_size, classes=num_classes)


def loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy; of one-hot vectors the mean squared error.

    Source of the latter: PyTorch tutorial "Single-Machine Model Parallel Best Practices".
    """
    if labels.is_floating_point():
        return functional.mse_loss(scores, labels)
    return functional.cross_entropy(at_least_float32(scores), labels)
