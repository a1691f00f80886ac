"""The textbooks' models: LeNet from raw tensors, the ResNet-18 variant, the toy model, and ResNet-50 in stages."""

import copy
import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from scalecard.training.partition import Cuts, stages

LENET_SHAPES = ((20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,), (800, 128), (128,), (128, 10), (10,))
INIT_STD = 0.01


def lenet_parameters(*, seed: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """W1, b1 ... W4, b4 on the CPU: weights normal(0, 0.01), biases zero.

    Source: Dive into Deep Learning, chapter "Training on Multiple GPUs".
    """
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(s, generator=generator) * INIT_STD if len(s) > 1 else torch.zeros(s) for s in LENET_SHAPES]
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


def resnet18_variant(*, seed: int) -> nn.Module:
    """ResNet-18 for 28x28 grey images: a 3x3 stem of stride 1, no max-pooling; linear and conv weights normal(0, 0.01).

    Source: Dive into Deep Learning, chapter "Concise Implementation for Multiple GPUs".
    """
    return copy.deepcopy(_resnet18(seed))


@functools.cache
def _resnet18(seed: int) -> nn.Module:
    """Drawing 11 million parameters takes longer than copying them."""
    from torchvision.models.resnet import BasicBlock, ResNet  # two seconds that not everybody needs

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: nn.Module = ResNet(BasicBlock, [2, 2, 2, 2], num_classes=10)
        model.conv1 = nn.Conv2d(1, 64, kernel_size=3, stride=1, padding=1)
        model.maxpool = nn.Identity()
        for layer in model.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                nn.init.normal_(layer.weight, std=INIT_STD)
    return model


MODELS = {"lenet": LeNet, "resnet18": resnet18_variant}


def toy_stages(*, seed: int) -> list[nn.Module]:
    """Linear(10, 10), ReLU | Linear(10, 5).

    Source: PyTorch tutorial "Single-Machine Model Parallel Best Practices".
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return [nn.Sequential(nn.Linear(10, 10), nn.ReLU()), nn.Sequential(nn.Linear(10, 5))]


NUM_BLOCKS = 18  # of ResNet-50: its stem, 16 bottlenecks, and its head
AFTER_LAYER2: Cuts = (8,)  # the textbook's


def resnet50_stages(
    *, seed: int, num_classes: int = 1000, cuts: Cuts = AFTER_LAYER2, only: int | None = None
) -> list[nn.Module]:
    """torchvision's ResNet-50, a new stage beginning with each of these blocks; every layer is in one stage only.

    With `only`, that stage alone, because copying all of them takes longer.

    block 0    the stem: convolution, batch normalisation, ReLU, pooling
          1    layer1, three bottlenecks
          4    layer2, four
          8    layer3, six
         14    layer4, three
         17    the head: pooling, and the classifier
    """
    m = _resnet50(seed, num_classes)
    blocks = [[m.conv1, m.bn1, m.relu, m.maxpool]]
    blocks += [[bottleneck] for layer in (m.layer1, m.layer2, m.layer3, m.layer4) for bottleneck in layer]
    blocks += [[m.avgpool, nn.Flatten(1), m.fc]]
    wanted = stages(len(blocks), cuts)[slice(only, None if only is None else only + 1)]
    return [copy.deepcopy(nn.Sequential(*(layer for block in one for layer in blocks[block]))) for one in wanted]


@functools.cache
def _resnet50(seed: int, num_classes: int) -> Any:
    """Drawing 25 million parameters takes longer than copying them."""
    from torchvision.models import resnet50

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return resnet50(num_classes=num_classes)


def freeze_batch_norm(model: nn.Module) -> nn.Module:
    """Put batch normalisation into eval mode.

    In training mode its statistics depend on how a batch is split, so a split batch computes a different function by
    definition; the equality proofs are about the parallelism and use this.
    """
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.eval()
    return model
