"""Layers divided over devices compute what the plain network computes, in float64; what that moves, by hand."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.counting import counting
from scalecard.parallel.tensor_parallel import OneDevice, TensorParallel
from scalecard.parallel.tensor_parallel_plans import BLOCKS, PARTITIONS, bytes_exchanged, counts, plan
from scalecard.workloads import reference
from scalecard.workloads.recipe import OptimizerSettings
from scalecard.workloads.workload import HOST, built_in
from torch import Tensor, nn

BATCH, STEPS, LR = 3, 2, 0.05
WIDTHS = (5, 7, 8, 10)
MODELS = ("lenet", "resnet18")


def made_of(name: str, seed: int = 0) -> nn.Module:
    return built_in(name, seed=seed).network(HOST)


def narrow_resnet18(*, seed: int) -> nn.Module:
    """ResNet-18's blocks with channels that neither two, three nor four devices divide, all of them."""
    from torchvision.models.resnet import BasicBlock

    model: Any = made_of("resnet18", seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model.conv1, model.bn1 = nn.Conv2d(1, WIDTHS[0], 3, padding=1), nn.BatchNorm2d(WIDTHS[0])
        before = WIDTHS[0]
        for stage, width in enumerate(WIDTHS, start=1):
            stride = 1 if stage == 1 else 2
            shape = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))
            first = BasicBlock(before, width, stride, None if stage == 1 else shape)
            setattr(model, f"layer{stage}", nn.Sequential(first, BasicBlock(width, width)))
            before = width
        model.fc = nn.Linear(before, 10)
    return model  # type: ignore[no-any-return]


NETWORKS = {"lenet": lambda seed: made_of("lenet", seed), "resnet18": narrow_resnet18}


@pytest.fixture
def devices(machine: Machine) -> Iterator[list[Device]]:
    with open_devices(machine, 4) as opened:
        yield opened


def batch(size: int = BATCH) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(size, 1, 28, 28, generator=generator, dtype=torch.float64)
    return images, torch.randint(10, (size,), generator=generator)


def wait(devices: list[Device]) -> None:
    for device in devices:
        device.synchronize()


def trained(made: OneDevice | TensorParallel, used: list[Device], steps: int = STEPS) -> list[Tensor]:
    for _ in range(steps):
        made.step([batch()] * len(used))
    wait(used)
    return made.whole()


def reference_of(module: nn.Module) -> list[Tensor]:
    steps = [reference.split(*batch(), [BATCH])] * STEPS
    plain = reference.train(copy.deepcopy(module), steps, loss=reference.cross_entropy, optimizer=OptimizerSettings(LR))
    moved = max(float((a - b).abs().max()) for a, b in zip(plain.before, plain.after, strict=True))
    assert moved > 1e-3
    return [*plain.after, *plain.buffers]


def largest_difference(ours: list[Tensor], theirs: list[Tensor]) -> float:
    assert [tensor.shape for tensor in ours] == [tensor.shape for tensor in theirs]
    return max(float((a - b).detach().abs().max()) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("model", NETWORKS)
def test_every_partition_equals_the_plain_loop_in_training_mode(devices: list[Device], model: str) -> None:
    module = NETWORKS[model](seed=0).double()
    wanted = reference_of(module)
    assert largest_difference(trained(OneDevice(devices[0], module, lr=LR), devices[:1]), wanted) < 1e-12
    for partition in PARTITIONS:
        for count in (2, 3, 4):
            made = TensorParallel(devices[:count], module, plan(model, partition), lr=LR)
            assert largest_difference(trained(made, devices[:count]), wanted) < 1e-12, (partition, count)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_devices_compute_what_is_replicated_alike(
    devices: list[Device], partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by itself: sending the first device's gradients only keeps them the same bit for bit."""
    monkeypatch.setattr(TensorParallel, "_agree", lambda self: None)
    made = TensorParallel(devices[:3], narrow_resnet18(seed=0).double(), plan("resnet18", partition), lr=LR)
    trained(made, devices[:3])
    assert made.replicated[0]
    for replicas in made.replicated[1:]:
        assert largest_difference(replicas, made.replicated[0]) < 1e-14


def test_all_devices_apply_the_first_ones_gradient_of_what_is_replicated(devices: list[Device]) -> None:
    """As if another device's kernels had added in another order."""
    made = TensorParallel(devices[:2], made_of("lenet").double(), plan("lenet", "row"), lr=LR)
    made.replicated[1][0].register_hook(lambda gradient: gradient + 1)
    trained(made, devices[:2])
    assert largest_difference(made.replicated[1], made.replicated[0]) == 0


def test_more_devices_than_units_leave_some_with_nothing(machine: Machine) -> None:
    module = made_of("lenet").double()
    with open_devices(machine, 12) as many:
        made = TensorParallel(many, module, plan("lenet", "column"), lr=LR)
        assert largest_difference(trained(made, many), reference_of(module)) < 1e-12
    assert [tensor.numel() for tensor in list(made.modules[-1].parameters())[-2:]] == [0, 0]


@pytest.mark.parametrize("partition", PARTITIONS)
def test_devices_share_the_weights_of_resnet_18(devices: list[Device], partition: str) -> None:
    """Of 11 million values, each of four devices has a quarter of what is divided, and all of what is replicated."""
    module = made_of("resnet18")
    made = TensorParallel(devices, module, plan("resnet18", partition), lr=LR)
    whole = sum(parameter.numel() for parameter in module.parameters())
    each = [sum(parameter.numel() for parameter in own.parameters()) for own in made.modules]
    replicated = counts("resnet18", partition).replicated
    assert each == [(whole - replicated) / 4 + replicated] * 4
    assert sum(parameter.numel() for parameter in made.replicated[0]) == replicated


def test_an_unknown_partition_is_named() -> None:
    with pytest.raises(ValueError, match=r"partition = diagonal: must be one of column, row, pairs"):
        plan("lenet", "diagonal")


def test_what_lenet_exchanges_by_hand() -> None:
    """One image, two devices, float32. The layers make 20 x 13 x 13, 50 x 4 x 4, 128 and 10 values."""
    outputs, inputs = 3380 + 800 + 128 + 10, 3380 + 800 + 128
    of_one = {partition: bytes_exchanged("lenet", partition, num_devices=2, batch_size=1) for partition in PARTITIONS}
    assert of_one == {
        "column": 4 * (outputs + 2 * inputs),
        "row": 4 * (2 * (50 * 9 * 9 + 128 + 10) + inputs + 200 + 188),  # the first layer, and three biases
        "pairs": 4 * (2 * (50 * 9 * 9 + 10) + 2 * 800 + 60),
    }
    assert bytes_exchanged("lenet", "pairs", num_devices=4, batch_size=10) == 3 * 4 * (10 * 9720 + 60)
    assert bytes_exchanged("lenet", "row", num_devices=1, batch_size=9) == 0


def test_what_resnet_18_exchanges_by_hand() -> None:
    """Pairs: all-reduces of eight blocks' outputs and of their inputs' gradients, all-gathers of three skips."""
    stages = [64 * 28 * 28, 128 * 14 * 14, 256 * 7 * 7, 512 * 4 * 4]
    outputs = 2 * sum(stages)
    inputs = outputs + stages[0] - stages[3]
    replicated = 64 * 9 + 64 + 128 + 5130 + 2 * 2 * (64 + 128 + 256 + 512)
    wanted = 4 * (2 * (outputs + inputs) + sum(stages[1:]) + replicated)
    assert bytes_exchanged("resnet18", "pairs", num_devices=2, batch_size=1) == wanted
    assert [block.reshapes for block in BLOCKS] == [False, False, True, False, True, False, True, False]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("partition", PARTITIONS)
def test_what_devices_receive_and_compute_is_as_the_formulas_say(
    devices: list[Device], model: str, partition: str
) -> None:
    """What is replicated two more devices compute, too."""
    module, step = made_of(model), counts(model, partition)
    alone = sums_of(OneDevice(devices[0], module, lr=LR), devices[:1])
    divided = sums_of(TensorParallel(devices[:3], module, plan(model, partition), lr=LR), devices[:3])
    assert divided["received bytes"] == bytes_exchanged(model, partition, num_devices=3, batch_size=1)
    assert divided["FLOPs"] == alone["FLOPs"] + 2 * step.replicated_flops


def sums_of(made: OneDevice | TensorParallel, devices: list[Device]) -> dict[str, float]:
    """What a step on one image is counted to do."""
    images, labels = batch(1)
    with counting() as tally:
        made.step([(images.float(), labels)] * len(devices))
        wait(devices)
    return tally.sums()
