"""A recommender, whose embedding has sparse gradients."""

import torch
from torch import nn, randint


def model():
    return nn.Sequential(nn.Embedding(64, 8, sparse=True), nn.Flatten(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2))


def batch(size, seed):
    items = randint(64, (size, 4), generator=torch.Generator().manual_seed(seed))
    return items, items.sum(1) % 2


loss = nn.CrossEntropyLoss()
