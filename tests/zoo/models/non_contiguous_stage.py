"""A model whose first block returns a transposed tensor, which is not contiguous."""

import torch
from torch import nn, randn


class Transposed(nn.Linear):
    def forward(self, x):
        return super().forward(x).transpose(1, 2)


def model():
    return nn.Sequential(Transposed(8, 12), nn.Linear(6, 6), nn.Flatten(), nn.Linear(72, 4))


def batch(size, seed):
    x = randn(size, 6, 8, generator=torch.Generator().manual_seed(seed))
    return x, x.flatten(1)[:, :4].argmax(1)


loss = nn.CrossEntropyLoss()
