"""What is split over devices is on all of them, and what stands for one device is on one."""

from collections.abc import Iterator

import pytest
from blocks import smoke_block
from scalecard import experiments
from scalecard.experiments import model_parallel, pipeline
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine
from scalecard.training import resnet50
from scalecard.training.resnet50 import Workload
from small_network import small_stages


@pytest.fixture
def devices(machine: Machine) -> Iterator[list[Device]]:
    with open_devices(machine, 3) as opened:
        yield opened


def test_each_stage_of_a_pipeline_has_a_device_of_its_own(
    devices: list[Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resnet50, "resnet50_stages", small_stages)
    load = Workload.of_check(experiments.build("pipeline", smoke_block("pipeline")))
    single, *split = [*pipeline._whole_batches(), *pipeline._pipelines()]
    assert pipeline._model(single, devices, load, 2).devices == devices[:1] * 2
    for implementation in split:
        assert pipeline._model(implementation, devices, load, 3).devices == devices, implementation.name


def test_model_parallelism_uses_both_devices(devices: list[Device]) -> None:
    two = devices[:2]
    assert model_parallel._strategies(two) == {"single device": two[:1] * 2, "model parallel": two}
