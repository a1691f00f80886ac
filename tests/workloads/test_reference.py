"""The plain loop against gradients worked out by hand and PyTorch's own losses, and what an epoch consists of."""

import math

import pytest
import torch
from scalecard.workloads import reference
from scalecard.workloads.recipe import OptimizerSettings
from torch import nn
from torch.nn import functional


def test_a_step_of_one_weight_is_what_the_hand_computes() -> None:
    """w = 1, x = [1, 2], y = [0, 0]: loss (1 + 4) / 2, gradient 2 (1 + 4) / 2 = 5, w - 0.1 * 5 = 0.5, loss 5 / 8."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    inputs, targets = torch.tensor([[1.0], [2.0]]), torch.zeros(2, 1)
    for sizes in ([2], [1, 1]):
        nn.init.ones_(model.weight)
        parts = reference.split(inputs, targets, sizes)
        trained = reference.train(model, [parts], loss=reference.loss, optimizer=OptimizerSettings(0.1), scored=True)
        assert (float(trained.before[0]), float(trained.after[0])) == (1, 0.5)
        assert trained.losses == (2.5, 0.625)


def test_a_loop_whose_losses_nobody_asks_for_forwards_each_part_once() -> None:
    model, forwards = nn.Linear(1, 1), list[int]()
    model.register_forward_hook(lambda *_: forwards.append(1))
    parts = reference.split(torch.ones(4, 1), torch.zeros(4, 1), [2, 2])
    trained = reference.train(model, [parts], loss=reference.loss, optimizer=OptimizerSettings(0.1))
    assert len(forwards) == 2
    assert all(map(math.isnan, trained.losses)), "whoever compares them sees that they are unknown"


def test_uneven_parts_weigh_as_much_as_they_hold() -> None:
    parts = reference.split(torch.arange(5.0).unsqueeze(1), torch.zeros(5, 1), [2, 2, 1])
    assert [part.weight for part in parts] == [0.4, 0.4, 0.2]
    assert torch.cat([part.inputs for part in parts]).flatten().tolist() == [0, 1, 2, 3, 4]


def test_the_losses_are_pytorchs() -> None:
    scores, labels = torch.randn(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0, 1])
    assert float(reference.cross_entropy(scores, labels)) == pytest.approx(
        float(functional.cross_entropy(scores, labels)), rel=1e-14
    )
    assert float(reference.loss(scores, scores + 2)) == 4


def test_training_counts_running_statistics_once_per_part() -> None:
    model = nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1))
    parts = reference.split(torch.randn(4, 1), torch.randn(4, 1), [2, 2])
    trained = reference.train(model, [parts] * 3, loss=reference.loss, optimizer=OptimizerSettings(0.1), scored=True)
    assert int(trained.buffers[-1]) == 6, "batches that the statistics have seen; losses alone do not count"


def test_an_epoch_takes_every_image_once_in_the_order_of_the_seed() -> None:
    images = torch.arange(7, dtype=torch.uint8).reshape(7, 1, 1, 1) * 36
    steps = reference.epoch(images, torch.arange(7), batch_size=3, seed=1, dtype=torch.float64)
    labels = [int(label) for parts in steps for part in parts for label in part.targets]
    assert sorted(labels) == list(range(7))
    assert labels == torch.randperm(7, generator=torch.Generator().manual_seed(1)).tolist()
    assert [sum(len(part.inputs) for part in parts) for parts in steps] == [3, 3, 1]
    for part in steps[0]:
        assert part.inputs.flatten().tolist() == pytest.approx([36 * int(label) / 255 for label in part.targets])


def test_an_epoch_in_shares_leaves_out_what_cannot_be_shared() -> None:
    images = torch.zeros(7, 1, 1, 1, dtype=torch.uint8)
    steps = reference.epoch(images, torch.arange(7), batch_size=4, seed=1, dtype=torch.float32, shares=2)
    assert [[len(part.inputs) for part in parts] for parts in steps] == [[2, 2]]


def test_uneven_shares_keep_every_image() -> None:
    images = torch.arange(7, dtype=torch.uint8).view(7, 1, 1, 1)
    steps = reference.epoch(images, torch.arange(7), batch_size=4, seed=1, dtype=torch.float64, shares=3, uneven=True)
    assert [[len(part.targets) for part in parts] for parts in steps] == [[2, 1, 1], [1, 1, 1]]
    assert sorted(int(label) for parts in steps for part in parts for label in part.targets) == list(range(7))
    assert [sum(part.weight for part in parts) for parts in steps] == [pytest.approx(1)] * 2
