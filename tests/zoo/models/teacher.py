"""A student and its teacher, whose frozen parameters follow the student's in every forward (an EMA, as BYOL's)."""

import copy

import torch
from torch import nn, randn


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8))
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.predict = nn.Linear(8, 8)

    def forward(self, x):
        with torch.no_grad():
            for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=False):
                slow.lerp_(fast, 0.1)
            wanted = self.teacher(x.flip(1))
        return (self.predict(self.student(x)) - wanted).square().mean(1)


def model():
    return Pair()


def batch(size, seed):
    x = randn(size, 16, generator=torch.Generator().manual_seed(seed))
    return x, x


def loss(errors, _):
    return errors.mean()
