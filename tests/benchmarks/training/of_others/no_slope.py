"""A model that no step makes better: its loss does not depend on what it computes."""

import torch
from torch import Tensor, nn


def model() -> nn.Module:
    return nn.Linear(3, 4)


def batch(size: int, seed: int) -> tuple[Tensor, Tensor]:
    return torch.ones(size, 3), torch.ones(size, 4)


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0 * (outputs - targets).mean()
