"""A ResNet of 26 layers with a quarter of ResNet-50's channels: the same four layers to cut, on machines without GPUs.

Each layer has two of ResNet-50's bottlenecks instead of three to six, which saves almost half of a step's time.
"""

from functools import partial

from torch import nn

from scalecard.workloads.builtin.resnet50 import batch as batch
from scalecard.workloads.builtin.resnet50 import dataset as dataset
from scalecard.workloads.builtin.resnet50 import loss as loss
from scalecard.workloads.builtin.resnets import blocks as blocks
from scalecard.workloads.builtin.resnets import narrowed


def model(*, num_classes: int = 1000) -> nn.Module:
    """Initialised as torchvision's ResNet-50."""
    from torchvision.models.resnet import Bottleneck, ResNet  # two seconds that not everybody needs

    made = narrowed(partial(ResNet, Bottleneck, [2, 2, 2, 2], num_classes=num_classes), 4)
    for layer in made.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return made
