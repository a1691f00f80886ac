"""Every strategy computes what the single device computes, in float64."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest
import torch
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine
from scalecard.parallel.data_parallel import ScratchDataParallel
from scalecard.parallel.model_parallel import ModelParallel
from scalecard.parallel.pipeline import ScheduledPipeline, TextbookPipeline
from scalecard.parallel.scratch_allreduce import ALGORITHMS
from scalecard.records.schedules import SCHEDULES
from scalecard.workloads.builtin.lenet import lenet_parameters
from scalecard.workloads.recipe import OptimizerSettings
from torch import Tensor, nn
from torch.nn import functional


@pytest.fixture
def devices(machine: Machine) -> Iterator[list[Device]]:
    with open_devices(machine, 4) as opened:
        yield opened


def wait(devices: list[Device]) -> None:
    for device in devices:
        device.synchronize()


def largest_difference(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    return max(float((a - b).detach().abs().max()) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("count", [2, 3, 4])
def test_scratch_data_parallel_equals_one_device(devices: list[Device], name: str, count: int) -> None:
    def train(used: list[Device]) -> list[list[Tensor]]:
        model = ScratchDataParallel(
            used, lenet_parameters(seed=0, dtype=torch.float64), lr=0.2, all_reduce=ALGORITHMS[name]
        )
        generator = torch.Generator().manual_seed(0)
        for _ in range(10):
            images = torch.rand(13, 1, 28, 28, generator=generator, dtype=torch.float64)
            model.step((images, torch.randint(10, (13,), generator=generator)))
        wait(used)
        return model.replicas

    (reference,) = train(devices[:1])
    assert all(parameter.any() for parameter in reference)
    replicas = train(devices[:count])
    assert max(largest_difference(replica, reference) for replica in replicas) < 1e-12
    assert largest_difference(replicas[0], replicas[-1]) == 0


def stages(norm: bool = False) -> list[nn.Module]:
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(16)] if norm else []
    first = nn.Sequential(nn.Linear(8, 16), *middle, nn.Tanh())
    return [first.double(), nn.Sequential(nn.Linear(16, 5)).double()]


def trained(
    strategy: Callable[..., ModelParallel], used: list[Device], norm: bool = False, split_size: int = 7
) -> list[Tensor]:
    model = strategy(stages(norm), used, optimizer=OptimizerSettings(0.1), loss=functional.mse_loss)
    generator = torch.Generator().manual_seed(1)
    inputs, targets = (torch.randn(7, n, generator=generator, dtype=torch.float64) for n in (8, 5))
    for _ in range(5):
        model.step(inputs, targets, split_size=split_size)
    wait(used)
    return [p for stage in model.stages for p in stage.parameters()]


@pytest.mark.parametrize("split_size", [1, 2, 3, 7])
@pytest.mark.parametrize("schedule", [None, *SCHEDULES])
def test_model_and_pipeline_parallel_equal_one_device(
    devices: list[Device], schedule: str | None, split_size: int
) -> None:
    reference = trained(ModelParallel, [devices[0]] * 2)
    if schedule is None:
        runs = [trained(ModelParallel, devices[:2]), trained(TextbookPipeline, devices[:2], split_size=split_size)]
    else:
        pipeline = partial(ScheduledPipeline, schedule=SCHEDULES[schedule])
        runs = [trained(pipeline, devices[:2], split_size=split_size)]
    for ours in runs:
        assert largest_difference(ours, reference) < 1e-12


def test_micro_batches_with_batch_norm_in_training_mode_are_another_function(devices: list[Device]) -> None:
    """Why the experiments prove equality in eval mode."""
    whole = trained(ModelParallel, [devices[0]] * 2, norm=True)
    split = trained(TextbookPipeline, devices[:2], norm=True, split_size=4)
    assert largest_difference(whole, split) > 1e-6
