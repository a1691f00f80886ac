"""A network in the place of ResNet-50, for tests of how it is trained and not of what it learns."""

import itertools

import torch
from scalecard.training.models import CUTS
from torch import nn


def small_stages(*, seed: int, num_classes: int, num_stages: int = 2) -> list[nn.Module]:
    """Four layers cut into stages, with batch normalisation in the first; the same parameters each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        first = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4), nn.BatchNorm2d(8), nn.ReLU())
        last = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(8, num_classes))
        layers = [first, nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1), last]
    return [nn.Sequential(*layers[start:end]) for start, end in itertools.pairwise(CUTS[num_stages])]
