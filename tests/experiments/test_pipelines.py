"""The pipelines of a cut model: what is split over devices is on all of them, and what stands for one is on one."""

from collections.abc import Iterator

import pytest
from scalecard import experiments
from scalecard.benchmarks.training.cut_model import after, resnet50
from scalecard.benchmarks.training.pipelines import staged_model, subject
from scalecard.benchmarks.training.strategy import References, Setting
from scalecard.experiments import pipeline
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine
from scalecard.parallel.model_parallel import ModelParallel
from scalecard.workloads.workload import Workload
from support.blocks import smoke_block
from support.small_network import replace_resnet50


@pytest.fixture
def devices(machine: Machine) -> Iterator[list[Device]]:
    with open_devices(machine, 3) as opened:
        yield opened


def test_each_stage_of_a_pipeline_has_a_device_of_its_own(
    devices: list[Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_resnet50(monkeypatch.setattr)
    workload = resnet50(experiments.build("pipeline", smoke_block("pipeline")), exact=True)
    whole, staged = staged_model(ModelParallel, devices, workload, ())
    assert staged.devices == devices[:1]
    assert staged.stages == [whole]
    for name, form in {"model parallel": ModelParallel, **pipeline.PIPELINES}.items():
        assert staged_model(form, devices, workload, after(workload.name, 1, 3))[1].devices == devices, name


@pytest.mark.parametrize(("split_size", "sizes"), [(50, (50, 50, 20)), (60, (60, 60)), (120, (120,))])
def test_micro_batches_have_the_split_size_and_the_last_one_has_what_is_left(
    split_size: int, sizes: tuple[int, ...]
) -> None:
    at = pipeline.setting(Workload("resnet50", "", "{}", 120, seed=0), (8,), split_size)
    assert at.micro_sizes() == sizes
    assert (at.devices, at.num_micro) == (2, len(sizes))


def test_a_call_of_several_steps_is_proven_by_one_of_them(machine: Machine) -> None:
    """Over three steps of ResNet-50 float32's roundings alone changed 0.57 of what changes."""
    toy = Workload("toy", "", "{}", 4, seed=0, lr=0.01)
    with open_devices(machine, 1) as (device,):
        made = subject(ModelParallel, [device], References(device.torch, 2), Setting(toy, 1), repeats=3)
        (check,) = made.prove()
        before = made.versions()
        made.work()
        device.synchronize()
    assert check.passed
    assert check.name.endswith("change in 1 step")
    assert made.updates_since(before) == {made.expected["updates"]} == {3}
