"""A model whose last layer raises on the second of two ranks alone, for micro-batches as pipelines have them."""

import torch
import torch.distributed as dist
from torch import nn, randn


class Odd(nn.Linear):
    def forward(self, x):
        second = dist.is_initialized() and dist.get_world_size() == 2 and dist.get_rank() == 1
        if second and len(x) == 2 and x.dtype == torch.float32:
            raise ValueError("two rows are odd")
        return super().forward(x)


def model():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), Odd(16, 4))


def batch(size, seed):
    x = randn(size, 8, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :4].argmax(1)


loss = nn.CrossEntropyLoss()
