"""A stage alone, which has no parameters to prove by."""

import torch
from scalecard.hardware.devices import CpuDevice
from scalecard.training.model_parallel import StageAlone
from torch import nn


def test_a_stage_alone_runs_as_often_as_it_is_told() -> None:
    device, calls = CpuDevice(0, 1), list[int]()
    stage = nn.Linear(2, 2)
    alone = StageAlone(stage, torch.ones(3, 2), device)
    stage.register_forward_hook(lambda *_: calls.append(1))
    alone.run(3)
    device.synchronize()
    device.close()
    assert len(calls) == 3
