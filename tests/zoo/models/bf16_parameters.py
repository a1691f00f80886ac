"""A model whose parameters are bfloat16, as many are loaded."""

import torch
from torch import nn, randn


def model():
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4)).bfloat16()


def batch(size, seed):
    x = randn(size, 16, generator=torch.Generator().manual_seed(seed))
    return x.bfloat16(), x[:, :4].argmax(1)


def loss(scores, labels):
    return nn.functional.cross_entropy(scores, labels)
