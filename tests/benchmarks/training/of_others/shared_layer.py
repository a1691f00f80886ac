"""A classifier that goes through one layer twice, like ALBERT; its blocks are all of it, but not in this order."""

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 5


class SharedLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(6, width)
        self.layer = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(self.layer(self.first(x)))
        scores: Tensor = self.last(self.norm(x))
        return scores


def model(width: int = 8) -> nn.Module:
    return SharedLayer(width)


def blocks(model: SharedLayer) -> list[nn.Module]:
    return [model.first, model.layer, model.norm, model.last]


def batch(size: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 6, generator=generator), torch.randint(CLASSES, (size,), generator=generator)


def loss(scores: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(scores, labels)
