"""ResNet-18 of the textbook's own residual blocks: every convolution has biases, and no shortcut is normalised.

resnet18.py has torchvision's blocks instead, without these biases, and with a normalisation after a shortcut's 1x1
convolution.
Source: Dive into Deep Learning, chapters "Residual Networks" and "Concise Implementation for Multiple GPUs".
"""

from itertools import pairwise
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

from scalecard.workloads.builtin.lenet import batch as batch
from scalecard.workloads.builtin.lenet import dataset as dataset
from scalecard.workloads.builtin.lenet import loss as loss
from scalecard.workloads.builtin.resnet18 import initialise
from scalecard.workloads.builtin.resnets import narrowed

CHANNELS = (64, 64, 128, 256, 512)  # of the stem, and of each pair of blocks


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


def model(*, share: int = 1, initialised: Literal["all", "not lazy"] = "all") -> nn.Module:
    """With 1/`share` of the channels. Linear and convolution weights are normal(0, 0.01), or only those not lazy.

    In the textbook's blocks layers are lazy: its init_weights(), called before the first batch, does not find their
    type, and they keep PyTorch's own initialisation.
    """
    made = narrowed(_whole, share) if share > 1 else _whole()
    if initialised == "all":
        initialise(made)
    else:
        for layer in made.children():
            if not isinstance(layer, Residual):
                initialise(layer)
    return made


def _whole() -> nn.Module:
    stem = [nn.Conv2d(1, CHANNELS[0], kernel_size=3, padding=1), nn.BatchNorm2d(CHANNELS[0]), nn.ReLU()]
    pairs = pairwise(CHANNELS)
    blocks = [Residual(*ends) for before, after in pairs for ends in ((before, after), (after, after))]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS[-1], 10))
