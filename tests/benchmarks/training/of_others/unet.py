"""A U-Net with skip connections: no chain of its children, and none of them gets one tensor only."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class UNet(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(1, channels, 3, padding=1)
        self.deep = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.up = nn.ConvTranspose2d(channels, channels, 2, stride=2)
        self.out = nn.Conv2d(2 * channels, 1, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        first = functional.relu(self.down(images))
        second = functional.relu(self.norm(self.deep(functional.max_pool2d(first, 2))))
        out: Tensor = self.out(torch.cat([first, self.up(second)], dim=1))
        return out


def model(channels: int = 8) -> nn.Module:
    return UNet(channels)


def batch(size: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(size, 1, 16, 16, generator=generator)
    return images, (images > 0.5).float()


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(outputs, targets)


def optimizer(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
