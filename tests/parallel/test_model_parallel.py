"""A stage alone: how often it runs, and what it leaves."""

from collections.abc import Iterator

import pytest
import torch
from scalecard.hardware.devices import CpuDevice
from scalecard.parallel.model_parallel import Given, StageAlone
from torch import nn


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    opened = CpuDevice(0, 1)
    yield opened
    opened.close()


def test_a_stage_alone_runs_as_often_as_it_is_told(device: CpuDevice) -> None:
    calls, stage = list[int](), nn.Linear(2, 2)
    alone = StageAlone(stage, Given(torch.ones(3, 2)), device)
    stage.register_forward_hook(lambda *_: calls.append(1))
    alone.run(3)
    alone.run(1, num_micro=2)
    device.synchronize()
    assert len(calls) == 5
    alone.forward(4)
    device.synchronize()
    assert len(calls) == 9


def test_the_gradients_of_micro_batches_add_up_and_those_of_batches_do_not(device: CpuDevice) -> None:
    alone = StageAlone(nn.Linear(2, 2), Given(torch.ones(3, 2)), device, needs_gradient=True)
    alone.run(2)
    device.synchronize()
    one = [gradient.clone() for gradient in alone.gradients()]
    alone.run(2, num_micro=3)
    device.synchronize()
    assert [bool(gradient.any()) for gradient in one] == [True, True]
    for gradient, once in zip(alone.gradients(), one, strict=True):
        torch.testing.assert_close(gradient, 3 * once)


def test_the_forwards_keep_what_their_backwards_would_need(device: CpuDevice) -> None:
    """Without it they would take less time than in a pipeline."""
    stage, needed = nn.Linear(2, 2), list[bool]()
    alone = StageAlone(stage, Given(torch.ones(3, 2)), device)
    stage.register_forward_hook(lambda _, inputs, output: needed.append(output.requires_grad))
    alone.forward(2)
    device.synchronize()
    assert needed == [True, True]
