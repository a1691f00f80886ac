"""A transformer's encoder with dropout in its attention, which PyTorch computes by another kernel while it trains."""

import torch
from torch import Tensor, nn
from torch.nn import functional


def model(width: int = 8) -> nn.Module:
    layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.1, batch_first=True)
    return nn.Sequential(layer, nn.Linear(width, 3))


def batch(size: int, seed: int, width: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 6, width, generator=generator), torch.randint(3, (size, 6), generator=generator)


def loss(scores: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), labels.flatten())


def optimizer(parameters: list[Tensor]) -> torch.optim.Optimizer:
    matrices = {"params": [each for each in parameters if each.ndim > 1], "weight_decay": 0.1}
    others = {"params": [each for each in parameters if each.ndim <= 1], "lr": 6e-4}
    return torch.optim.AdamW([matrices, others], lr=3e-4, weight_decay=0.0)
