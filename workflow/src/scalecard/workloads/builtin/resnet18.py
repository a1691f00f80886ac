"""The textbook's ResNet-18 for grey images of 28 x 28 pixels: a 3x3 stem of stride 1, no max-pooling.

Source: Dive into Deep Learning, chapter "Concise Implementation for Multiple GPUs".
"""

from torch import nn

from scalecard.workloads.builtin.lenet import batch as batch
from scalecard.workloads.builtin.lenet import dataset as dataset
from scalecard.workloads.builtin.lenet import loss as loss
from scalecard.workloads.builtin.resnets import blocks as blocks

INIT_STD = 0.01


def model() -> nn.Module:
    """Linear and convolution weights are normal(0, 0.01)."""
    from torchvision.models.resnet import BasicBlock, ResNet  # two seconds that not everybody needs

    made: nn.Module = ResNet(BasicBlock, [2, 2, 2, 2], num_classes=10)
    made.conv1 = nn.Conv2d(1, 64, kernel_size=3, stride=1, padding=1)
    made.maxpool = nn.Identity()
    initialise(made)
    return made


def initialise(model: nn.Module) -> None:
    """As in the textbook."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.normal_(layer.weight, std=INIT_STD)
