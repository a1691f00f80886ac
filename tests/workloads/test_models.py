"""The textbooks' models: what they compute, by other means, and which parameters a seed gives them."""

from collections.abc import Callable

import pytest
import torch
from scalecard.workloads.models import MODELS
from torch import nn


@pytest.mark.parametrize("make", [*MODELS.values()])
def test_a_seed_gives_the_same_parameters_each_time_and_another_seed_others(make: Callable[..., nn.Module]) -> None:
    first, again, other = (torch.cat([p.flatten() for p in make(seed=seed).parameters()]) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_drawing_parameters_leaves_the_generator_as_it_was() -> None:
    before = torch.get_rng_state()
    MODELS["lenet"](seed=5)
    assert torch.equal(torch.get_rng_state(), before)
