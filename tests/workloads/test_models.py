"""The textbooks' models: what they compute, by other means, and which parameters a seed gives them."""

from collections.abc import Callable

import pytest
import torch
from scalecard.workloads.models import AFTER_LAYER2, MODELS, NUM_BLOCKS, freeze_batch_norm, resnet50_stages, toy_stages
from scalecard.workloads.stage_cuts import Cuts
from torch import nn
from torchvision.models import resnet50


def seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


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
