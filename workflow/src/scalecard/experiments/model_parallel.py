"""What does cutting a model over two devices cost, and how long does each device idle?

ResNet-50 cut after layer2, trained on two devices one minibatch at a time, against the same network on one device;
and each stage alone, which shows how long its device is busy. Inputs and targets are created on their devices before
the clock starts.

The answer would be wrong if the cut network computed something else (proven in float64, with batch normalisation in
eval mode), or if a layer were registered twice and trained twice (each belongs to one stage).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from scalecard import progress
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.out_of_memory import guarded
from scalecard.measuring.peak_memory import peak_memory
from scalecard.measuring.proof import same_parameters
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.spec import Common, Positive, Rate
from scalecard.measuring.variant import Variant
from scalecard.records.record import Case, Check, Record
from scalecard.training.model_parallel import ModelParallel, StageAlone
from scalecard.training.models import toy_stages
from scalecard.training.resnet50 import Workload, one_hot_images, reference, trained


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    batch_size: Positive
    image_size: Positive
    batches: Positive
    num_classes: Positive
    lr: Rate
    toy_batch_size: Positive
    check_batch_size: Positive
    check_image_size: Positive
    check_steps: Positive


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """The toy, then ResNet-50: time, stages alone, peak memory."""
    if machine.num_devices < 2:
        for part in ("toy", "resnet50"):
            case: Case = {"model": part, "strategy": "model parallel", "devices": 2}
            yield Record.skipped(case, "needs 2 devices, this machine has 1")
    with open_devices(machine, min(2, machine.num_devices)) as devices:
        yield from _toy(spec, devices)
        yield from guarded(_resnet50(spec, devices), {"model": "resnet50"})


def _toy(spec: Spec, devices: list[Device]) -> Iterator[Record]:
    generator = torch.Generator().manual_seed(spec.seed)
    inputs = torch.randn(spec.toy_batch_size, 10, generator=generator)
    targets = torch.randn(spec.toy_batch_size, 5, generator=generator)

    def train(used: list[Device]) -> list[torch.Tensor]:
        stages = [stage.double() for stage in toy_stages(seed=spec.seed)]
        model = ModelParallel(stages, used, lr=spec.lr)
        for _ in range(spec.check_steps):
            model.step(inputs.double().to(used[0].torch), targets.double().to(used[-1].torch))
        for device in used:
            device.synchronize()
        return model.parameters()

    checks: list[Check] = []
    if len(devices) > 1:
        name = f"toy: parameters after {spec.check_steps} steps"
        checks = [same_parameters(name, train(devices), train([devices[0]] * 2))]
    variants = []
    for strategy, used in _strategies(devices).items():
        model = ModelParallel(toy_stages(seed=spec.seed), used, lr=spec.lr)
        work = partial(model.step, inputs.to(used[0].torch), targets.to(used[-1].torch))
        case: Case = {"model": "toy", "strategy": strategy, "batch_size": spec.toy_batch_size}
        variants.append(Variant(name=strategy, case=case, work=work, checks=checks))
    progress.doing("the toy model")
    for timing in time_rounds(variants, devices=devices, rule=spec.measure):
        yield timing.record()


def _resnet50(spec: Spec, devices: list[Device]) -> Iterator[Record]:
    load = Workload.of(spec)
    checks = [_check(spec, devices)] if len(devices) > 1 else []
    case: Case = {"model": "resnet50", "batch_size": spec.batch_size, "image_size": spec.image_size}
    case["batches"] = spec.batches
    variants = []
    for strategy, used in _strategies(devices).items():
        model = ModelParallel(load.stages(), used, lr=spec.lr)
        work = partial(_train, model, *one_hot_images(load, used[0].torch, used[-1].torch), spec.batches)
        own: Case = {**case, "strategy": strategy}
        proven = checks if strategy == "model parallel" else []
        variants.append(Variant(name=strategy, case=own, work=work, checks=proven, devices=used))
    if len(devices) > 1:
        for name, stage in _stages_alone(devices, load).items():
            own = {**case, "strategy": name}
            variants.append(Variant(name=name, case=own, work=partial(stage.run, spec.batches)))
    progress.doing(f"ResNet-50: {', '.join(variant.name for variant in variants)}")
    for timing in time_rounds(variants, devices=devices, rule=spec.measure):
        yield timing.record()
    yield from peak_memory(variants, model="resnet50")


def _check(spec: Spec, devices: list[Device]) -> Check:
    """Parameters after several float64 steps on two devices against one."""
    progress.doing("ResNet-50: proving equality in float64")
    small = Workload.of_check(spec)
    ours = trained(small, devices, ModelParallel.step, spec.check_steps)
    name = f"parameters after {spec.check_steps} steps, batch norm in eval mode"
    return same_parameters(name, ours, reference(small, devices[0], spec.check_steps))


def _stages_alone(devices: list[Device], load: Workload) -> dict[str, StageAlone]:
    """Each stage with an input like the one it gets in the whole network."""
    first, second = load.stages()
    images, _ = one_hot_images(load, devices[0].torch, devices[1].torch)
    stages = {"stage 0 alone": StageAlone(first, images, devices[0])}
    with torch.no_grad():
        crossing = stages["stage 0 alone"].stage(images)
    stages["stage 1 alone"] = StageAlone(second, crossing, devices[1], needs_gradient=True)
    return stages


def _strategies(devices: list[Device]) -> dict[str, list[Device]]:
    both = {"model parallel": list(devices)} if len(devices) > 1 else {}
    return {"single device": [devices[0]] * 2, **both}


def _train(model: ModelParallel, inputs: torch.Tensor, targets: torch.Tensor, batches: int) -> None:
    for _ in range(batches):
        model.step(inputs, targets)
