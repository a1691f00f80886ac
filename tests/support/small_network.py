"""A network in the place of ResNet-50, for tests of how it is trained and not of what it learns."""

from collections.abc import Callable
from functools import partial
from typing import Any

from scalecard.benchmarks.training import cut_model, stage_timing
from scalecard.benchmarks.training.cut_model import BOTTLENECKS, num_blocks
from scalecard.workloads import modules, workload
from torch import Tensor, nn


class Residual(nn.Conv2d):
    """Like a bottleneck, it hands its input on."""

    def forward(self, images: Tensor) -> Tensor:
        return images + super().forward(images) / 8


def small_model(name: str, *, num_classes: int) -> nn.Module:
    """As many blocks as the ResNet of this name has, with batch normalisation in the first."""
    first = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4), nn.BatchNorm2d(8), nn.ReLU())
    last = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(8, num_classes))
    return nn.Sequential(first, *(Residual(8, 8, 1) for _ in range(num_blocks(name) - 2)), last)


def replace_resnet50(replace: Callable[[Any, str, Any], None] = setattr) -> None:
    """From now on it is the model of both built-in workloads that pipelines cut."""
    for name in BOTTLENECKS:
        module = modules.BUILT_IN[name]
        replace(module, "model", partial(small_model, name))
        replace(module, "blocks", lambda model: list(model.children()))
    for cached in (workload._built_in, cut_model._operations, cut_model._handed_over, stage_timing._stages):
        cached.cache_clear()
    stage_timing.given.cache_clear()
