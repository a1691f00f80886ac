"""SGD that updates many tensors at once (foreach), as it does on CUDA unless told otherwise, with DTensors."""

from functools import partial

import pytest
import torch
from scalecard.distributed import Layout
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch
from scalecard.hardware.machine import Machine
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.counting import counted
from scalecard.parallel import sharded
from scalecard.parallel.step import Step
from scalecard.workloads import recipe
from scalecard.workloads.recipe import OptimizerName, OptimizerSettings
from scalecard.workloads.reference import trainable
from torch import nn
from torch.autograd.graph import increment_version
from torch.distributed.device_mesh import init_device_mesh

pytestmark = pytest.mark.usefixtures("forked_ranks")

FOREACH = partial(torch.optim.SGD, foreach=True)
PLAN = {"0": "column", "1": "row"}


def _divided_in_part(ctx: RankContext) -> float:
    """A step of a model of which tensor parallelism divides one layer: how far its other layer's bias moved."""
    torch.optim.SGD = FOREACH  # type: ignore[assignment, misc]
    mesh = init_device_mesh("cpu", (ctx.world_size,))
    model = sharded.divided(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)), PLAN, mesh)
    before = model[2].bias.detach().clone()
    optimizer = OptimizerSettings(0.1).build(trainable(model))
    Step(model, torch.ones(2, 4), torch.ones(2, 2), loss=nn.MSELoss(), optimizer=optimizer)()
    return float((model[2].bias.detach() - before).abs().max())


def test_a_step_takes_plain_tensors_beside_divided_ones(machine: Machine) -> None:
    assert all(moved > 0 for moved in launch(_divided_in_part, layout=Layout(2), machine=machine))


def _sharded(ctx: RankContext) -> set[int]:
    """How many updates of FSDP2's parameters are counted after three, as CUDA's kernels for many tensors count them."""
    model = nn.Linear(4, 4)
    sharded.sharded(model, [], init_device_mesh("cpu", (ctx.world_size,)), parameters=True)
    subject = Subject(work=tuple, prove=tuple, state=partial(trainable, model))
    before = subject.versions()
    for _ in range(3):
        for parameter in subject.parameters():
            increment_version(parameter._local_tensor)
    return subject.updates_since(before)


def _one_by_one(ctx: RankContext) -> tuple[float, set[int]]:
    """The same of a counted step, which updates one tensor after another, as on a CPU, and of three further steps."""
    model = nn.Linear(4, 4)
    sharded.sharded(model, [], init_device_mesh("cpu", (ctx.world_size,)), parameters=True)
    optimizer = OptimizerSettings(0.1).build(trainable(model))
    step = Step(model, torch.ones(2, 4), torch.zeros(2, 4), loss=nn.MSELoss(), optimizer=optimizer)
    subject = Subject(work=step, prove=tuple, expected={"updates": 1}, state=partial(trainable, model))
    (count,) = counted(subject, ctx.synchronize)
    before = subject.versions()
    for _ in range(3):
        step()
    return count.counted, subject.updates_since(before)


def test_updates_of_sharded_parameters_are_counted(machine: Machine) -> None:
    assert launch(_sharded, layout=Layout(2), machine=machine) == [{3}] * 2
    assert launch(_one_by_one, layout=Layout(2), machine=machine) == [(1, {3})] * 2


def _fused(ctx: RankContext, name: OptimizerName) -> dict[str, tuple[float, float]]:
    """What is counted of a step of FSDP2's parameters, and what is expected, where there are fused implementations."""
    recipe.FUSING = ("cpu",)
    model, settings = nn.Linear(4, 4), OptimizerSettings(0.1, name)
    sharded.sharded(model, [], init_device_mesh("cpu", (ctx.world_size,)), parameters=True)
    optimizer = settings.build(trainable(model))
    step = Step(model, torch.ones(2, 4), torch.zeros(2, 4), loss=nn.MSELoss(), optimizer=optimizer)
    counts = settings.updates(trainable(model))
    subject = Subject(work=step, prove=tuple, expected=counts, state=partial(trainable, model))
    return {count.name: (count.counted, count.expected) for count in counted(subject, ctx.synchronize)}


def test_of_divided_parameters_adamw_is_fused_and_sgd_is_not(machine: Machine) -> None:
    """PyTorch has no fused SGD for DTensors."""
    assert launch(_fused, "adamw", layout=Layout(2), machine=machine) == [{"fused updates": (1, 1)}] * 2
    assert launch(_fused, "sgd", layout=Layout(2), machine=machine) == [{"updates": (1, 1)}] * 2
