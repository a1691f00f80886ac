"""The pipelines of a cut model: what is split over devices is on all of them, and what stands for one is on one."""

from collections.abc import Iterator

import pytest
from scalecard import experiments
from scalecard.benchmarks.training import pipelines
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine
from scalecard.parallel import resnet50
from scalecard.parallel.resnet50 import Workload
from support.blocks import smoke_block
from support.small_network import small_stages


@pytest.fixture
def devices(machine: Machine) -> Iterator[list[Device]]:
    with open_devices(machine, 3) as opened:
        yield opened


def test_each_stage_of_a_pipeline_has_a_device_of_its_own(
    devices: list[Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resnet50, "resnet50_stages", small_stages)
    load = Workload.of_check(experiments.build("pipeline", smoke_block("pipeline")))
    single, *split = [*pipelines.whole_batches(), pipelines.textbooks(), *pipelines.ours()]
    assert pipelines._model(single, devices, load).devices == devices[:1] * 2
    for implementation in split:
        assert pipelines._model(implementation, devices, load.cut((4, 14))).devices == devices, implementation.name
