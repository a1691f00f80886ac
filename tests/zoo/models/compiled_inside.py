"""A model that is compiled inside of model()."""

import torch
from torch import nn, randn


def model():
    return torch.compile(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)))


def batch(size, seed):
    x = randn(size, 16, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :4].argmax(1)


loss = nn.CrossEntropyLoss()
