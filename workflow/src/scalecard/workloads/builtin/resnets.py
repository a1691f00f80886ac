"""What the residual networks have in common: where they can be cut, and how they are made narrower."""

from collections.abc import Callable

import torch
from torch import nn


def blocks(model: nn.Module) -> list[nn.Module]:
    """The stem, every residual block, and the head."""
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
