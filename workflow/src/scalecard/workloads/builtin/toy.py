"""The tutorial's toy: Linear(10, 10), ReLU, Linear(10, 5).

Source: PyTorch tutorial "Single-Machine Model Parallel Best Practices".
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def model() -> nn.Module:
    """In two blocks."""
    return nn.Sequential(nn.Sequential(nn.Linear(10, 10), nn.ReLU()), nn.Sequential(nn.Linear(10, 5)))


def batch(size: int, seed: int) -> tuple[Tensor, Tensor]:
    """(size, 10) inputs and (size, 5) targets, normal."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 10, generator=generator), torch.randn(size, 5, generator=generator)


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.mse_loss(outputs, targets)


def blocks(model: nn.Module) -> list[nn.Module]:
    """The tutorial's two stages."""
    return list(model.children())


def tensor_plan(model: nn.Module) -> dict[str, str]:
    """The hidden units are divided."""
    return {"0.0": "column", "1.0": "row"}
