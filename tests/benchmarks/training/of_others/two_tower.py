"""Two towers with dicts as inputs and outputs, and dropout."""

import torch
from helper_of_two_tower import tower
from torch import Tensor, nn
from torch.nn import functional


class TwoTower(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(50, width), nn.Linear(12, width)
        self.left, self.right = tower(width), tower(width)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        left, right = self.left(self.users(inputs["user"])), self.right(self.items(inputs["item"]))
        return {"score": (left * right).sum(dim=1)}


def model(width: int = 16) -> nn.Module:
    return TwoTower(width)


def batch(size: int, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    users = torch.randint(50, (size,), generator=generator)
    items = torch.randn(size, 12, generator=generator)
    return {"user": users, "item": items}, {"clicked": (items[:, 0] > 0).to(items.dtype)}


def loss(outputs: dict[str, Tensor], targets: dict[str, Tensor]) -> Tensor:
    return functional.binary_cross_entropy_with_logits(outputs["score"], targets["clicked"].to(outputs["score"].dtype))


def optimizer(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(parameters, lr=1e-3, momentum=0.5, centered=True)
