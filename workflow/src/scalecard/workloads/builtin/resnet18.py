"""The textbook's ResNet-18 for grey images of 28 x 28 pixels: a 3x3 stem of stride 1, no max-pooling.

It has torchvision's residual blocks, in which no convolution has biases, and a normalisation follows a shortcut's 1x1
convolution; or the textbook's own, `printed`, with these biases, and without this normalisation.

Source: Dive into Deep Learning, chapters "Residual Networks" and "Concise Implementation for Multiple GPUs".
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from scalecard.workloads.builtin.lenet import batch as batch
from scalecard.workloads.builtin.lenet import dataset as dataset
from scalecard.workloads.builtin.lenet import loss as loss

INIT_STD = 0.01
CHANNELS = (64, 64, 128, 256, 512)  # of the printed stem, and of each pair of blocks


def model() -> nn.Module:
    """Linear and convolution weights are normal(0, 0.01)."""
    from torchvision.models.resnet import BasicBlock, ResNet  # two seconds that not everybody needs

    made: nn.Module = ResNet(BasicBlock, [2, 2, 2, 2], num_classes=10)
    made.conv1 = nn.Conv2d(1, 64, kernel_size=3, stride=1, padding=1)
    made.maxpool = nn.Identity()
    return initialise(made)


def quarter() -> nn.Module:
    """A quarter of its channels: it learns within a minute on machines without GPUs."""
    return initialise(narrowed(model, 4))


def eighth() -> nn.Module:
    """An eighth of its channels: it learns within seconds on machines without GPUs."""
    return initialise(narrowed(model, 8))


def initialise(model: nn.Module) -> nn.Module:
    """The model, initialised as in the textbook."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.normal_(layer.weight, std=INIT_STD)
    return model


def blocks(model: nn.Module) -> list[nn.Module]:
    """Where torchvision's residual networks can be cut: the stem, every residual block, and the head."""
    stem = nn.Sequential(*(model.get_submodule(name) for name in ("conv1", "bn1", "relu", "maxpool")))
    layers = (model.get_submodule(name) for name in ("layer1", "layer2", "layer3", "layer4"))
    head = nn.Sequential(model.get_submodule("avgpool"), nn.Flatten(1), model.get_submodule("fc"))
    return [stem, *(block for layer in layers for block in layer.children()), head]


def narrowed(make: Callable[[], nn.Module], share: int) -> nn.Module:
    """The same network with 1/`share` of the channels between its layers, so about 1/`share`**2 of the work."""
    with torch.device("meta"):  # what is replaced needs no memory
        model = make()
    for name, layer in list(model.named_modules()):
        narrow: nn.Module
        if isinstance(layer, nn.Conv2d):
            images = layer.in_channels < share  # whose channels are the images' own
            narrow = nn.Conv2d(
                layer.in_channels if images else layer.in_channels // share,
                layer.out_channels // share,
                kernel_size=layer.kernel_size,  # type: ignore[arg-type]
                stride=layer.stride,  # type: ignore[arg-type]
                padding=layer.padding,  # type: ignore[arg-type]
                bias=layer.bias is not None,
            )
        elif isinstance(layer, nn.BatchNorm2d):
            narrow = nn.BatchNorm2d(layer.num_features // share)
        elif isinstance(layer, nn.Linear):
            narrow = nn.Linear(layer.in_features // share, layer.out_features)
        else:
            continue
        model.set_submodule(name, narrow)
    return model


class Residual(nn.Module):
    """Two 3x3 convolutions, and a 1x1 one beside them where the number of channels changes, with half of the pixels."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.conv1 = nn.Conv2d(before, after, kernel_size=3, padding=1, stride=stride)
        self.conv2 = nn.Conv2d(after, after, kernel_size=3, padding=1)
        self.conv3 = nn.Conv2d(before, after, kernel_size=1, stride=stride) if stride > 1 else nn.Identity()
        self.bn1, self.bn2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)

    def forward(self, images: Tensor) -> Tensor:
        inner = functional.relu(self.bn1(self.conv1(images)))
        return functional.relu(self.bn2(self.conv2(inner)) + self.conv3(images))


def printed(*, share: int = 1, initialised: Literal["all", "not lazy"] = "all") -> nn.Module:
    """With 1/`share` of the channels. Linear and convolution weights are normal(0, 0.01), or only those not lazy.

    In the textbook's blocks layers are lazy: its init_weights(), called before the first batch, does not find their
    type, and they keep PyTorch's own initialisation.
    """
    made = narrowed(_whole, share) if share > 1 else _whole()
    if initialised == "all":
        return initialise(made)
    for layer in made.children():
        if not isinstance(layer, Residual):
            initialise(layer)
    return made


def _whole() -> nn.Module:
    stem = [nn.Conv2d(1, CHANNELS[0], kernel_size=3, padding=1), nn.BatchNorm2d(CHANNELS[0]), nn.ReLU()]
    pairs = pairwise(CHANNELS)
    blocks = [Residual(*ends) for before, after in pairs for ends in ((before, after), (after, after))]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS[-1], 10))
