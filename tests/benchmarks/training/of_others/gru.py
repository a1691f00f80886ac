"""A language model with a GRU, whose output is a tuple, and tied weights."""

import torch
from torch import Tensor, nn
from torch.nn import functional

UNIT = "tokens"


class Gru(nn.Module):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, vocabulary)
        self.out.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.gru(self.embedding(tokens))
        scores: Tensor = self.out(hidden)
        return scores


def model(vocabulary: int = 40, width: int = 16) -> nn.Module:
    return Gru(vocabulary, width)


def batch(size: int, seed: int, vocabulary: int = 40) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocabulary, (size, 9), generator=torch.Generator().manual_seed(seed))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def loss(scores: Tensor, tokens: Tensor) -> Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())
