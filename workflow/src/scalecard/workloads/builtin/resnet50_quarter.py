"""ResNet-50 with a quarter of its channels: the same layers to cut, on machines without GPUs."""

from functools import partial

from torch import nn

from scalecard.workloads.builtin import resnet50
from scalecard.workloads.builtin.resnet50 import batch as batch
from scalecard.workloads.builtin.resnet50 import dataset as dataset
from scalecard.workloads.builtin.resnet50 import loss as loss
from scalecard.workloads.builtin.resnets import blocks as blocks
from scalecard.workloads.builtin.resnets import narrowed


def model(*, num_classes: int = 1000) -> nn.Module:
    """Initialised as torchvision's."""
    made = narrowed(partial(resnet50.model, num_classes=num_classes), 4)
    for layer in made.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return made
