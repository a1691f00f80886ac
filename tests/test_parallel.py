"""Every strategy computes what the single device computes, in float64; schedules are what they claim."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from scalecard.devices import Device, open_devices
from scalecard.machine import Machine
from scalecard.models import lenet_parameters
from scalecard.parallel.allreduce import ALGORITHMS
from scalecard.parallel.data import ScratchDataParallel
from scalecard.parallel.model import ModelParallel
from scalecard.parallel.pipeline import ScheduledPipeline, TextbookPipeline
from scalecard.parallel.schedules import SCHEDULES, Action
from scalecard.proof import ProofFailed, proven
from torch import Tensor, nn


@pytest.fixture
def devices(machine: Machine) -> Iterator[list[Device]]:
    with open_devices(machine, 5) as opened:
        yield opened


def wait(devices: list[Device]) -> None:
    for device in devices:
        device.synchronize()


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_all_reduce_is_exact_however_often(devices: list[Device], name: str, count: int) -> None:
    used = devices[:count]
    buckets = [[torch.arange(7.0).double() + i, torch.full((2, 3), float(i)).double()] for i in range(count)]
    total = [sum((b[k] for b in buckets), torch.zeros_like(buckets[0][k])) for k in range(2)]
    for _ in range(20):
        ALGORITHMS[name](used, buckets)
    wait(used)
    for bucket in buckets:
        for ours, once in zip(bucket, total, strict=True):
            assert torch.equal(ours, once * count**19)


@pytest.mark.parametrize(("name", "count"), list(itertools.product(ALGORITHMS, [2, 3, 4])))
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
    replicas = train(devices[:count])
    for replica in replicas:
        for ours, theirs in zip(replica, reference, strict=True):
            assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)
            assert not torch.equal(theirs, torch.zeros_like(theirs))
    assert all(torch.equal(a, b) for a, b in zip(replicas[0], replicas[-1], strict=True))


def stages(norm: bool = False) -> list[nn.Module]:
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(16)] if norm else []
    first = nn.Sequential(nn.Linear(8, 16), *middle, nn.Tanh())
    return [first.double(), nn.Sequential(nn.Linear(16, 5)).double()]


def trained(strategy: type[ModelParallel], used: list[Device], norm: bool = False, **options: object) -> list[Tensor]:
    model = strategy(stages(norm), used, lr=0.1)
    generator = torch.Generator().manual_seed(1)
    inputs, targets = (torch.randn(7, n, generator=generator, dtype=torch.float64) for n in (8, 5))
    for _ in range(5):
        if options:
            model.pipelined_step(inputs, targets, **options)  # type: ignore[attr-defined]
        else:
            model.step(inputs, targets)
    wait(used)
    return model.parameters()


@pytest.mark.parametrize("split_size", [1, 2, 3, 7])
@pytest.mark.parametrize("schedule", [None, *SCHEDULES])
def test_model_and_pipeline_parallel_equal_one_device(
    devices: list[Device], schedule: str | None, split_size: int
) -> None:
    reference = trained(ModelParallel, [devices[0]] * 2)
    if schedule is None:
        runs = [trained(ModelParallel, devices[:2]), trained(TextbookPipeline, devices[:2], split_size=split_size)]
    else:
        runs = [trained(ScheduledPipeline, devices[:2], split_size=split_size, schedule=SCHEDULES[schedule])]
    for ours in runs:
        assert max(float((a - b).detach().abs().max()) for a, b in zip(ours, reference, strict=True)) < 1e-12


def test_micro_batches_with_batch_norm_in_training_mode_are_another_function(devices: list[Device]) -> None:
    """Why the experiments prove equality in eval mode."""
    whole = trained(ModelParallel, [devices[0]] * 2, norm=True)
    split = trained(TextbookPipeline, devices[:2], norm=True, split_size=4)
    assert max(float((a - b).detach().abs().max()) for a, b in zip(whole, split, strict=True)) > 1e-6


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 1), (2, 3), (3, 7), (4, 4), (4, 2)])
def test_a_schedule_does_everything_once_and_in_order(name: str, p: int, m: int) -> None:
    ticks = list(SCHEDULES[name](p, m))
    done: set[Action] = set()
    held = [0] * p
    for tick in ticks:
        assert len({action.stage for action in tick}) == len(tick)
        for forward, stage, micro in tick:
            before = [Action(True, stage - 1, micro)] if forward and stage else []
            before += [] if forward else [Action(True, stage, micro)]
            before += [Action(False, stage + 1, micro)] if not forward and stage < p - 1 else []
            assert set(before) <= done
            held[stage] += 1 if forward else -1
        done.update(tick)
        if name == "1f1b":
            assert all(count <= p - stage for stage, count in enumerate(held))
    assert done == {Action(f, s, k) for f in (True, False) for s in range(p) for k in range(m)}
    assert len(ticks) == 2 * (m + p - 1)


def test_a_difference_beyond_the_tolerance_is_refused() -> None:
    with pytest.raises(ProofFailed, match=r"differs by 0\.001"):
        proven("parameters", 1e-3, 1e-10)
    with pytest.raises(ProofFailed):
        proven("parameters", float("nan"), 1e-10)
