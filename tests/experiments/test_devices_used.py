"""What is split over devices is on all of them, and what stands for one device is on one."""

from collections.abc import Iterator

import pytest
from scalecard import experiments
from scalecard.benchmarks.training.strategy import References
from scalecard.experiments import model_parallel
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine
from support.blocks import smoke_block


@pytest.fixture
def devices(machine: Machine) -> Iterator[list[Device]]:
    with open_devices(machine, 3) as opened:
        yield opened


def test_each_stage_of_model_parallelism_has_a_device_of_its_own(devices: list[Device]) -> None:
    spec = experiments.build("model_parallel", smoke_block("model_parallel"))
    references, case = References(devices[0].torch, 1), {"devices": 3, "cut": "balanced"}
    whole, *stages = model_parallel._cut(spec, devices, references, (4, 14), case)
    assert list(whole.devices) == devices
    assert [variant.build.args for variant in stages] == list(enumerate(devices))
