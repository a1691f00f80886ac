"""Layers on the meta device: a table of positions that is computed, not drawn, a tied one, and one that is not trained.

`looked_at` is called whenever it is initialised, by who wants to know what the host holds then.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

looked_at: list[Callable[[], object]] = []
WIDTH = 6  # which 4 ranks do not divide


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 9), nn.Linear(9, WIDTH)
        self.register_buffer("scale", torch.empty(1))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.scale * self.down(functional.gelu(self.up(self.norm(x))))
        return found


class WithoutData(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(7, WIDTH), nn.Linear(WIDTH, 7)
        self.out.weight = self.embedding.weight
        self.fixed = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.layers = nn.ModuleList(Residual() for _ in range(layers))
        self.register_buffer("places", torch.arange(4.0), persistent=False)

    def init_weights(self) -> None:
        for look in looked_at:
            look()
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.LayerNorm):
                module.reset_parameters()
            if isinstance(module, Residual):
                module.scale.fill_(0.5)
        nn.init.normal_(self.out.weight, std=0.5)
        self.places = torch.arange(4.0)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.fixed(self.embedding(tokens) + self.places[:, None])
        for layer in self.layers:
            x = layer(x)
        scores: Tensor = self.out(x)
        return scores


def model(layers: int = 4) -> nn.Module:
    with torch.device("meta"):
        return WithoutData(layers)


def batch(size: int, seed: int) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(7, (size, 5), generator=torch.Generator().manual_seed(seed))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def loss(scores: Tensor, tokens: Tensor) -> Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())


def blocks(model: nn.Module) -> list[nn.Module]:
    return list(model.children())
