"""The updates that the plain loop computes by hand, against PyTorch's optimisers, and what a proof can tell by them."""

from typing import get_args

import pytest
import torch
from scalecard.measuring.case_variant import version
from scalecard.workloads import reference
from scalecard.workloads.update import Optimizer, Update
from torch import Tensor, nn

EVERY = get_args(Optimizer)
STEPS = 3


def weights() -> list[nn.Parameter]:
    return [nn.Parameter(torch.linspace(-1, 1, size, dtype=torch.float64)) for size in (5, 3)]


def gradients(step: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(size, dtype=torch.float64, generator=generator) / 10 for size in (5, 3)]


def by_hand(update: Update, scale: float = 1.0) -> list[nn.Parameter]:
    parameters = weights()
    rule = reference.Rule(update, parameters)
    for step in range(STEPS):
        rule.apply([scale * slope for slope in gradients(step)])
    return parameters


def by_pytorch(update: Update, *, fused: bool = False) -> list[nn.Parameter]:
    parameters = weights()
    optimizer = update.of(parameters, fused=fused)
    for step in range(STEPS):
        for parameter, slope in zip(parameters, gradients(step), strict=True):
            parameter.grad = slope
        optimizer.step()
    return parameters


def distance(ours: list[nn.Parameter], theirs: list[nn.Parameter]) -> float:
    return max(float((a - b).detach().abs().max()) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("optimizer", EVERY)
def test_pytorchs_optimiser_does_what_the_formula_says(optimizer: Optimizer, *, fused: bool) -> None:
    update = Update(0.1, optimizer)
    assert distance(by_hand(update), by_pytorch(update, fused=fused)) < 1e-15


@pytest.mark.parametrize("optimizer", EVERY)
def test_half_of_a_gradient_is_far_from_all_of_it(optimizer: Optimizer) -> None:
    """With the usual epsilon AdamW's steps would be the same but for a millionth."""
    update = Update(0.1, optimizer)
    whole, half = by_hand(update), by_hand(update, 0.5)
    assert distance(whole, half) > 0.3 * distance(whole, weights())


def test_each_has_its_own_steps() -> None:
    found = [by_hand(Update(0.1, optimizer)) for optimizer in EVERY]
    assert min(distance(a, b) for place, a in enumerate(found) for b in found[:place]) > 1e-3


@pytest.mark.parametrize("optimizer", EVERY)
def test_a_step_changes_a_parameter_and_keeps_values_as_often_as_it_says(optimizer: Optimizer) -> None:
    update, parameters = Update(0.1, optimizer), weights()
    made = update.of(parameters)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    before = [version(parameter) for parameter in parameters]
    made.step()
    assert {version(now) - then for now, then in zip(parameters, before, strict=True)} == {update.changes}
    kept = [value for value in made.state[parameters[0]].values() if value is not None and value.numel() > 1]
    assert len(kept) == update.values_kept
