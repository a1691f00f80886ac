"""torchvision's ResNet-50 on random images."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from scalecard.workloads.builtin.images import Pictures
from scalecard.workloads.builtin.resnets import blocks as blocks


def model(*, num_classes: int = 1000) -> nn.Module:
    """With random parameters."""
    from torchvision.models import resnet50  # two seconds that not everybody needs

    made: nn.Module = resnet50(num_classes=num_classes)
    return made


def batch(size: int, seed: int, *, image_size: int = 224, num_classes: int = 1000) -> tuple[Tensor, Tensor]:
    """(size, 3, image_size, image_size) normal images, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(size, 3, image_size, image_size, generator=generator)
    return images, torch.randint(num_classes, (size,), generator=generator)


def dataset(*, image_size: int = 224, num_classes: int = 1000) -> Pictures:
    """Coloured pictures."""
    return Pictures(channels=3, size=image_size, classes=num_classes)


def loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy."""
    return functional.cross_entropy(scores, labels)
