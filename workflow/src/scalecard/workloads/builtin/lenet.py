"""The textbook's LeNet on grey images of 28 x 28 pixels.

Source: Dive into Deep Learning, chapter "Training on Multiple GPUs".
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from scalecard.workloads.builtin.images import Pictures
from scalecard.workloads.nested import at_least_float32

SHAPES = ((20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,), (800, 128), (128,), (128, 10), (10,))
INIT_STD = 0.01


def lenet_parameters(*, seed: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """W1, b1 ... W4, b4 on the CPU: weights normal(0, 0.01), biases zero."""
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(s, generator=generator) * INIT_STD if len(s) > 1 else torch.zeros(s) for s in SHAPES]
    return [weight.to(dtype) for weight in weights]


def lenet(images: Tensor, parameters: list[Tensor]) -> Tensor:
    """(n, 1, 28, 28) images to (n, 10) scores: conv, ReLU, average pool, twice; two dense layers."""
    w1, b1, w2, b2, w3, b3, w4, b4 = parameters
    images, w1, w2 = in_fast_layout(images, w1, w2)
    h = functional.avg_pool2d(functional.relu(functional.conv2d(images, w1, b1)), 2, 2)
    h = functional.avg_pool2d(functional.relu(functional.conv2d(h, w2, b2)), 2, 2)
    h = functional.relu(h.flatten(1) @ w3 + b3)
    return h @ w4 + b4


def in_fast_layout(images: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """What LeNet convolves: on a CPU in channels-last layout, 1.4 times as fast for the same sums; no gain on GPUs."""
    if images.device.type != "cpu":
        return images, *weights
    images = images.to(memory_format=torch.channels_last)
    return images, *(w.flatten().view(w.shape) for w in weights)  # so that gradients have the parameters' own layout


class LeNet(nn.Module):
    """The same LeNet as a module, for the strategies that wrap modules."""

    def __init__(self, *, seed: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(lenet_parameters(seed=seed))

    def forward(self, images: Tensor) -> Tensor:
        return lenet(images, list(self.weights))


def model() -> nn.Module:
    """With other parameters for another seed of PyTorch's."""
    return LeNet(seed=torch.initial_seed())


def batch(size: int, seed: int) -> tuple[Tensor, Tensor]:
    """(size, 1, 28, 28) random images, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(size, 1, 28, 28, generator=generator)
    return images, torch.randint(10, (size,), generator=generator)


def dataset() -> Pictures:
    return Pictures(channels=1, size=28, classes=10)


def loss(scores: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(at_least_float32(scores), labels)
