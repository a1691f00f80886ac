"""The textbook's ResNet-18 with an eighth of its channels, which learns within seconds on machines without GPUs."""

from torch import nn

from scalecard.workloads.builtin import resnet18
from scalecard.workloads.builtin.resnet18 import batch as batch
from scalecard.workloads.builtin.resnet18 import dataset as dataset
from scalecard.workloads.builtin.resnet18 import loss as loss
from scalecard.workloads.builtin.resnets import blocks as blocks
from scalecard.workloads.builtin.resnets import narrowed


def model() -> nn.Module:
    """Linear and convolution weights are normal(0, 0.01)."""
    made = narrowed(resnet18.model, 8)
    resnet18.initialise(made)
    return made
