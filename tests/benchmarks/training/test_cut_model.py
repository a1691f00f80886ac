"""The textbooks' ResNet-50, wherever it is cut: what its stages compute, hand over, and take in operations."""

import json
from dataclasses import replace

import pytest
import torch
from scalecard.benchmarks.training.cut_model import after, crossing, cut, num_blocks
from scalecard.benchmarks.training.stage_timing import given, plain_flops, stage_of
from scalecard.benchmarks.training.strategy import References, Setting
from scalecard.parallel.step import state_of
from scalecard.workloads.stage_cuts import Cuts
from scalecard.workloads.workload import HOST, Workload
from torch import nn
from torchvision.models import resnet50

VALUES = {"image_size": 64, "num_classes": 7, "one_hot": True}
LOAD = Workload("resnet50", "", json.dumps(VALUES), 2, seed=3, lr=0.1)


def torchvisions() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(LOAD.seed)
        return resnet50(num_classes=7)


@pytest.mark.parametrize(
    "cuts", [after("resnet50", 2), (1,), (4, 14), (4, 8, 14), tuple(range(1, num_blocks("resnet50")))]
)
def test_the_stages_of_resnet_50_are_torchvisions_network(cuts: Cuts) -> None:
    """Wherever it is cut, also in the order of its parameters and buffers."""
    whole, stages = cut(replace(LOAD, exact=True), cuts)
    theirs = torchvisions().double().eval()
    images = torch.rand(1, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(nn.Sequential(*stages)(images), theirs(images))
    assert len(stages) == len(cuts) + 1
    for state in (state_of(whole), state_of(nn.Sequential(*stages))):
        assert all(torch.equal(a, b) for a, b in zip(state, state_of(theirs), strict=True))


def test_the_textbook_cuts_after_layer2() -> None:
    """PyTorch's tutorial: conv1 to layer2 on the first device, layer3 to fc on the second."""
    whole = torchvisions()
    first = [whole.conv1, whole.bn1, whole.layer1, whole.layer2]
    expected = [sum(p.numel() for part in first for p in part.parameters())]
    expected.append(sum(p.numel() for p in whole.parameters()) - expected[0])
    assert [sum(p.numel() for p in stage.parameters()) for stage in cut(LOAD, after("resnet50", 2))[1]] == expected


def test_the_smaller_resnet_is_cut_after_the_same_layer() -> None:
    workload = Workload("resnet26_quarter", "", json.dumps(VALUES), 2, seed=3, lr=0.1)
    whole, (first, _) = cut(workload, after("resnet26_quarter", 2))
    assert len(workload.module.blocks(whole)) == num_blocks("resnet26_quarter")
    parts = ("conv1", "bn1", "layer1", "layer2")
    assert {*first.parameters()} == {p for name in parts for p in whole.get_submodule(name).parameters()}


def test_the_textbooks_loss_is_the_mean_squared_error_to_one_hot_vectors() -> None:
    targets = LOAD.batch(5, HOST)[1]
    assert targets.shape == (5, 7)
    assert torch.equal(targets.sum(1), torch.ones(5))
    scores = torch.rand(5, 7)
    assert float(LOAD.loss(scores, targets)) == pytest.approx(float(((scores - targets) ** 2).mean()))
    labels = replace(LOAD, values=json.dumps({**VALUES, "one_hot": False})).batch(5, HOST)[1]
    assert torch.equal(targets.argmax(1), labels)


def test_one_stage_alone_is_the_same_one() -> None:
    alone, among = stage_of(LOAD, (4, 14), 1), cut(LOAD, (4, 14))[1][1]
    assert alone is not stage_of(LOAD, (4, 14), 1), "each is a copy"
    assert all(torch.equal(a, b) for a, b in zip(alone.parameters(), among.parameters(), strict=True))


@pytest.mark.parametrize("cuts", [after("resnet50", 2), (3, 9, 16)])
def test_a_step_is_its_stages_together(cuts: Cuts) -> None:
    """Each stage alone computes what it does in the whole; the loss has no products."""
    at = Setting(LOAD, len(cuts) + 1, cuts=cuts)
    alone = [plain_flops(stage, HOST, at)["FLOPs"] for stage in range(at.devices)]
    assert References(HOST, 1).counts(LOAD, [2]) == {"FLOPs": sum(alone)}
    assert min(alone) > 0


@pytest.mark.parametrize(
    ("cuts", "values"),
    [
        ((8,), [512 * 8 * 8]),  # after layer2, of 64 x 64 pixels
        ((1, 4, 17), [64 * 16 * 16, 256 * 16 * 16, 2048 * 2 * 2]),  # after the stem, layer1 and layer4
    ],
)
def test_the_bytes_that_cross_a_cut(cuts: Cuts, values: list[int]) -> None:
    assert crossing(LOAD, cuts, 2, HOST) == [2 * 4 * one for one in values]
    assert [each.inputs[0].numel() for each in given(LOAD, cuts, HOST)[1:]] == values
