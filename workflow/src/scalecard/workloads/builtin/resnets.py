"""What the residual networks have in common."""

from torch import nn


def blocks(model: nn.Module) -> list[nn.Module]:
    """The stem, every residual block, and the head."""
    stem = nn.Sequential(*(model.get_submodule(name) for name in ("conv1", "bn1", "relu", "maxpool")))
    layers = (model.get_submodule(name) for name in ("layer1", "layer2", "layer3", "layer4"))
    head = nn.Sequential(model.get_submodule("avgpool"), nn.Flatten(1), model.get_submodule("fc"))
    return [stem, *(block for layer in layers for block in layer.children()), head]
