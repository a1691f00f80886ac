"""Which parameters a seed gives the built-in models."""

import importlib

import pytest
import torch
from scalecard.workloads.workload import HOST, built_in


@pytest.mark.parametrize("name", ["lenet", "resnet18", "toy"])
@pytest.mark.parametrize("exact", [False, True])
def test_a_seed_gives_the_same_parameters_each_time_and_another_seed_others(name: str, exact: bool) -> None:
    made = [built_in(name, seed=seed, exact=exact).network(HOST) for seed in (1, 1, 2)]
    first, again, other = (torch.cat([p.flatten() for p in model.parameters()]) for model in made)
    assert first.dtype == (torch.float64 if exact else torch.float32)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_what_is_trained_is_a_copy_of_its_own() -> None:
    first, again = (built_in("lenet", seed=1).network(HOST) for _ in range(2))
    with torch.no_grad():
        next(first.parameters()).zero_()
    assert bool(next(again.parameters()).any())


def test_drawing_parameters_leaves_the_generator_as_it_was() -> None:
    before = torch.get_rng_state()
    built_in("lenet", seed=5).network(HOST)
    assert torch.equal(torch.get_rng_state(), before)


def test_modes_are_those_of_training_and_of_exact_proofs() -> None:
    assert built_in("resnet18", seed=0).network(HOST).training
    assert not built_in("resnet18", seed=0, exact=True).network(HOST).training


@pytest.mark.parametrize("name", ["lenet", "resnet50", "gpt"])
def test_a_loss_of_rounded_scores_is_computed_in_float32(name: str) -> None:
    """Under autocast a CPU's cross_entropy casts by itself; a GPU's leaves the scores in bfloat16."""
    loss = importlib.import_module(f"scalecard.workloads.builtin.{name}").loss
    scores = torch.randn((2, 3, 5) if name == "gpt" else (2, 5), generator=torch.Generator().manual_seed(0)).bfloat16()
    labels = torch.zeros(scores.shape[:-1], dtype=torch.long)
    assert loss(scores, labels).dtype == torch.float32
    assert torch.equal(loss(scores, labels), loss(scores.float(), labels))
    assert loss(scores.double(), labels).dtype == torch.float64
