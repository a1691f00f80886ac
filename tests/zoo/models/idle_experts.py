"""A mixture of experts, some of which get no token of a batch, and then no gradient."""

import torch
from torch import nn, randn


class Experts(nn.Module):
    def __init__(self, width=16, count=8):
        super().__init__()
        self.router = nn.Linear(width, count)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def forward(self, x):
        weights = self.router(x).softmax(-1)
        best, chosen = weights.max(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mine = chosen == number
            if mine.any():
                out[mine] = best[mine, None] * expert(x[mine])
        return x + out


def model():
    return nn.Sequential(Experts(), nn.Linear(16, 4))


def batch(size, seed):
    x = randn(size, 16, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :4].argmax(1)


loss = nn.CrossEntropyLoss()

FIND_UNUSED_PARAMETERS = True
