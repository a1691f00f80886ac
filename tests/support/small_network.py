"""A network in the place of ResNet-50, for tests of how it is trained and not of what it learns."""

import torch
from scalecard.workloads.models import AFTER_LAYER2, NUM_BLOCKS
from scalecard.workloads.stage_cuts import Cuts, stages
from torch import Tensor, nn


class Residual(nn.Conv2d):
    """Like a bottleneck, it hands its input on."""

    def forward(self, images: Tensor) -> Tensor:
        return images + super().forward(images) / 8


def small_stages(*, seed: int, num_classes: int, cuts: Cuts = AFTER_LAYER2, only: int | None = None) -> list[nn.Module]:
    """As many blocks as ResNet-50 has, with batch normalisation in the first; the same parameters each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        first = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4), nn.BatchNorm2d(8), nn.ReLU())
        last = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(8, num_classes))
        blocks = [first, *(Residual(8, 8, 1) for _ in range(NUM_BLOCKS - 2)), last]
    found = [nn.Sequential(*blocks[span.start : span.stop]) for span in stages(len(blocks), cuts)]
    return found if only is None else [found[only]]
