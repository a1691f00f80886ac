"""A Fourier layer, whose weights are complex numbers."""

import torch
from torch import nn, randn


class Spectral(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.weight = nn.Parameter(randn(width // 2 + 1, dtype=torch.complex64))

    def forward(self, x):
        return torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=x.shape[-1])


def model():
    return nn.Sequential(nn.Linear(16, 16), Spectral(), nn.GELU(), Spectral(), nn.Linear(16, 4))


def batch(size, seed):
    x = randn(size, 16, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :4].argmax(1)


loss = nn.CrossEntropyLoss()
