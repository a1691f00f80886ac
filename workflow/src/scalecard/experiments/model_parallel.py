"""What does cutting a model over two devices cost, and how long does each device idle?

ResNet-50 cut after layer2, trained on two devices one minibatch at a time, against the same network on one device;
besides, each stage alone, which tells how long its device is busy. Inputs and targets are made before the clock
starts, and live on the device that needs them.

It would be wrong if the cut network computed something else (proven in float64, batch normalisation in eval mode), or
if a layer were registered twice and trained twice (each belongs to one stage).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from scalecard import measure, progress
from scalecard.devices import Device, open_devices
from scalecard.failures import guarded
from scalecard.machine import Machine
from scalecard.models import resnet50_stages, toy_stages
from scalecard.parallel.model import ModelParallel, StageAlone
from scalecard.parallel.workload import Workload, one_hot_images, peak_memory, reference, trained
from scalecard.proof import same_parameters
from scalecard.schema import Case, Check, Record
from scalecard.specs import Common, Positive, Rate


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
            yield Record(
                case=case, metric="time", unit="s", status="skipped", note="needs 2 devices, this machine has 1"
            )
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
    works = {}
    for strategy, used in _strategies(devices).items():
        model = ModelParallel(toy_stages(seed=spec.seed), used, lr=spec.lr)
        works[strategy] = partial(model.step, inputs.to(used[0].torch), targets.to(used[-1].torch))
    progress.doing("the toy model")
    for strategy, timing in measure.rounds(works, devices=devices, rule=spec.measure).items():
        yield timing.record({"model": "toy", "strategy": strategy, "batch_size": spec.toy_batch_size}, checks=checks)


def _resnet50(spec: Spec, devices: list[Device]) -> Iterator[Record]:
    load = Workload(spec.batch_size, spec.image_size, spec.num_classes, spec.lr, spec.seed)
    small = Workload(spec.check_batch_size, spec.check_image_size, spec.num_classes, spec.lr, spec.seed)
    checks: list[Check] = []
    if len(devices) > 1:
        progress.doing("ResNet-50: proving equality in float64")
        ours = trained(small, devices, ModelParallel.step, spec.check_steps)
        name = f"parameters after {spec.check_steps} steps, batch norm in eval mode"
        checks = [same_parameters(name, ours, reference(small, devices[0], spec.check_steps))]
    works: dict[str, measure.Work] = {}
    models = {}
    for strategy, used in _strategies(devices).items():
        models[strategy] = ModelParallel(
            resnet50_stages(seed=spec.seed, num_classes=spec.num_classes), used, lr=spec.lr
        )
        works[strategy] = partial(
            _train, models[strategy], *one_hot_images(load, used[0].torch, used[-1].torch), spec.batches
        )
    if len(devices) > 1:
        works |= {name: partial(stage.run, spec.batches) for name, stage in _stages_alone(spec, devices, load).items()}
    case: Case = {"model": "resnet50", "batch_size": spec.batch_size, "image_size": spec.image_size}
    case["batches"] = spec.batches
    progress.doing(f"ResNet-50: {', '.join(works)}")
    for strategy, timing in measure.rounds(works, devices=devices, rule=spec.measure).items():
        proven = checks if strategy == "model parallel" else []
        yield timing.record({**case, "strategy": strategy}, checks=proven)
    yield from peak_memory(({**case, "strategy": s}, works[s], model.devices) for s, model in models.items())


def _stages_alone(spec: Spec, devices: list[Device], load: Workload) -> dict[str, StageAlone]:
    """Each stage with an input like the one it gets in the whole network."""
    first, second = resnet50_stages(seed=spec.seed, num_classes=spec.num_classes)
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
