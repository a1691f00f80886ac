"""A model that computes something else on the second of several ranks: no proof passes."""

import torch
import torch.distributed as dist
from no_mean import batch  # noqa: F401
from torch import Tensor, nn


class Other(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        second = dist.is_initialized() and dist.get_rank() == 1
        return 2 * super().forward(x) if second else super().forward(x)


def model() -> nn.Module:
    return Other(3, 4)


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return torch.nn.functional.mse_loss(outputs, targets)
