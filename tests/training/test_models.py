"""The textbooks' models: what they compute, by other means, and which parameters a seed gives them."""

from collections.abc import Callable

import pytest
import torch
from scalecard.training.models import (
    AFTER_LAYER2,
    MODELS,
    NUM_BLOCKS,
    freeze_batch_norm,
    resnet18_variant,
    resnet50_stages,
    toy_stages,
)
from scalecard.training.partition import Cuts
from scalecard.workloads.lenet import lenet_parameters
from torch import nn
from torchvision.models import resnet50


def seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def test_lenet_is_the_textbooks() -> None:
    """Dive into Deep Learning: two convolutions with ReLU and average pooling, two dense layers."""
    parameters = [p * 20 for p in lenet_parameters(seed=0, dtype=torch.float64)]
    layers = nn.Sequential(
        *(nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10)),
    ).double()
    with torch.no_grad():
        for ours, theirs in zip(layers.parameters(), parameters, strict=True):
            ours.copy_(theirs.T if theirs.dim() == 2 else theirs)
        module = MODELS["lenet"](seed=0).double()
        for ours, theirs in zip(module.parameters(), parameters, strict=True):
            ours.copy_(theirs)
        images = torch.rand(3, 1, 28, 28, dtype=torch.float64)
        torch.testing.assert_close(module(images), layers(images), rtol=0, atol=1e-12)
    assert sum(p.numel() for p in parameters) == 200 + 25_050 + 102_528 + 1_290


def test_resnet_18_is_the_textbooks_variant() -> None:
    """A 3x3 stem of stride 1 and no pooling: the first residual blocks see whole images."""
    model, shapes = resnet18_variant(seed=0), []
    model.layer1.register_forward_pre_hook(lambda module, inputs: shapes.append(tuple(inputs[0].shape)))
    assert model(torch.rand(2, 1, 28, 28)).shape == (2, 10)
    assert shapes == [(2, 64, 28, 28)]
    stem, head = 640 - 9_408, 5_130 - 513_000  # beside torchvision's ResNet-18 for 1000 classes of colour images
    assert sum(p.numel() for p in model.parameters()) == 11_689_512 + stem + head
    weights = torch.cat([m.weight.flatten() for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)])
    assert float(weights.detach().std()) == pytest.approx(0.01, rel=0.01)


@pytest.mark.parametrize("cuts", [AFTER_LAYER2, (1,), (4, 14), (4, 8, 14), tuple(range(1, NUM_BLOCKS))])
def test_the_stages_of_resnet_50_are_torchvisions_network(cuts: Cuts) -> None:
    """Wherever it is cut, also in the order of its parameters and buffers."""
    stages = freeze_batch_norm(nn.Sequential(*resnet50_stages(seed=3, num_classes=7, cuts=cuts)))
    whole = freeze_batch_norm(seeded(lambda: resnet50(num_classes=7), 3))
    images = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(stages(images), whole(images))
    assert len(stages) == len(cuts) + 1
    for ours, theirs in ((stages.parameters(), whole.parameters()), (stages.buffers(), whole.buffers())):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_the_textbook_cuts_after_layer2() -> None:
    """PyTorch's tutorial: conv1 to layer2 on the first device, layer3 to fc on the second."""
    whole = resnet50(num_classes=7)
    first = [whole.conv1, whole.bn1, whole.layer1, whole.layer2]
    stages = resnet50_stages(seed=0, num_classes=7)
    expected = [sum(p.numel() for part in first for p in part.parameters())]
    expected.append(sum(p.numel() for p in whole.parameters()) - expected[0])
    assert [sum(p.numel() for p in stage.parameters()) for stage in stages] == expected


def test_one_stage_alone_is_the_same_one() -> None:
    (alone,) = resnet50_stages(seed=3, num_classes=7, cuts=(4, 14), only=1)
    among = resnet50_stages(seed=3, num_classes=7, cuts=(4, 14))[1]
    assert all(torch.equal(a, b) for a, b in zip(alone.parameters(), among.parameters(), strict=True))


@pytest.mark.parametrize("make", [*MODELS.values(), lambda seed: nn.Sequential(*toy_stages(seed=seed))])
def test_a_seed_gives_the_same_parameters_each_time_and_another_seed_others(make: Callable[..., nn.Module]) -> None:
    first, again, other = (torch.cat([p.flatten() for p in make(seed=seed).parameters()]) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_drawing_parameters_leaves_the_generator_as_it_was() -> None:
    before = torch.get_rng_state()
    MODELS["lenet"](seed=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_toy_is_the_tutorials() -> None:
    """PyTorch's tutorial on model parallelism: Linear(10, 10), ReLU, Linear(10, 5)."""
    first, second = toy_stages(seed=0)
    assert [tuple(p.shape) for stage in (first, second) for p in stage.parameters()] == [(10, 10), (10,), (5, 10), (5,)]
    x = torch.randn(3, 10)
    assert torch.equal(first(x), first[0](x).relu())
