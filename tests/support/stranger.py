"""A model that ScaleCard has never seen, as a user would write it: a classifier of sixteen numbers."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

INPUTS, CLASSES = 16, 4


def model(width: int = 32, depth: int = 4) -> nn.Module:
    hidden = [
        nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.LayerNorm(width))
        for _ in range(depth)
    ]
    return nn.Sequential(nn.Linear(INPUTS, width), *hidden, nn.Dropout(0.1), nn.Linear(width, CLASSES))


def batch(size: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(size, INPUTS, generator=generator)
    return inputs, inputs[:, :CLASSES].argmax(dim=1)


def loss(scores: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(scores, labels)


def blocks(model: nn.Sequential) -> list[nn.Module]:
    return list(model)


def tensor_plan(model: nn.Sequential) -> dict[str, str]:
    hidden = [name for name, block in model.named_children() if isinstance(block, nn.Sequential)]
    return {f"{name}.0": "column" for name in hidden} | {f"{name}.2": "row" for name in hidden}


def dataset() -> Dataset[tuple[Tensor, ...]]:
    return TensorDataset(*batch(64, seed=0))
