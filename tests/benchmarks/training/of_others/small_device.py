"""A model of which a device holds two samples at a time; the plain loop falls back to the host, which holds more."""

import sys

import torch
from torch import Tensor, nn

HOLDS = 2


def by_the_plain_loop() -> bool:
    frame = sys._getframe()
    while frame.f_back:
        frame = frame.f_back
        if frame.f_globals["__name__"] == "scalecard.workloads.reference":
            return True
    return False


class Layer(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        if len(x) > HOLDS and not by_the_plain_loop():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().forward(x)


def model() -> nn.Module:
    return nn.Sequential(*(Layer(4, 4) for _ in range(4)))


def batch(size: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 4, generator=generator), torch.randn(size, 4, generator=generator)


loss = nn.MSELoss()
