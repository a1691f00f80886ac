"""What does cutting a model over two devices cost, and how long does each device idle?

ResNet-50 cut after layer2, trained on two devices one minibatch at a time, against the same network on one device;
and each stage alone, which shows how long its device is busy. Inputs and targets are created on their devices before
the clock starts.

The answer would be wrong if the cut network computed something else (every variant is proven against a plain loop in
float64, with batch normalisation in eval mode, and as it is timed), or if it did not do all of its work (its
operations, samples, updates and the bytes handed over are counted).
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from scalecard import progress
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.counting import flops
from scalecard.measuring.out_of_memory import guarded
from scalecard.measuring.peak_memory import peak_memory
from scalecard.measuring.proof import expected, same_gradients
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.spec import Common, Positive, Rate
from scalecard.measuring.subjects import training
from scalecard.measuring.variant import Subject, Variant
from scalecard.records.record import Case, Check, Record
from scalecard.training import reference
from scalecard.training.model_parallel import ModelParallel, StageAlone
from scalecard.training.models import toy_stages
from scalecard.training.resnet50 import Workload, bytes_handed_over, one_hot_images, plain, step_without_data


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
    variants = []
    for strategy, used in _strategies(devices).items():
        case: Case = {"model": "toy", "strategy": strategy, "batch_size": spec.toy_batch_size}
        build = partial(_toy_subject, spec, used)
        variants.append(Variant(name=strategy, case=case, build=build, proven_at=[True], timed_at=False))
    progress.doing("the toy model")
    for timing in time_rounds(variants, devices=devices, rule=spec.measure):
        yield timing.record()


def _toy_subject(spec: Spec, used: list[Device], exact: bool) -> Subject:
    dtype, times = (torch.float64, spec.check_steps) if exact else (torch.float32, 1)
    generator = torch.Generator().manual_seed(spec.seed)
    inputs = torch.randn(spec.toy_batch_size, 10, generator=generator).to(used[0].torch, dtype)
    targets = torch.randn(spec.toy_batch_size, 5, generator=generator).to(used[-1].torch, dtype)
    model = ModelParallel([stage.to(dtype) for stage in toy_stages(seed=spec.seed)], used, lr=spec.lr)

    def plainly(exactly: bool) -> reference.Plain:
        network = nn.Sequential(*toy_stages(seed=spec.seed)).to(used[0].torch, dtype)
        parts = reference.split(inputs, targets.to(inputs.device), [len(inputs)])
        network, parts = (network.double(), [part.exactly() for part in parts]) if exactly else (network, parts)
        return reference.train(network, [parts] * times, loss=reference.mean_squared_error, lr=spec.lr)

    return training(
        "the toy",
        partial(model.step, inputs, targets),
        model.state,
        partial(expected, "the toy", plainly, exact=exact),
        times=times,
        steps=times,
        devices=used,
        counts={"updates": 1, "forwards": 1, "samples": len(inputs)},
        module=model.stages[0],
    )


def _resnet50(spec: Spec, devices: list[Device]) -> Iterator[Record]:
    load, small = Workload.of(spec), Workload.of_check(spec)
    case: Case = {"model": "resnet50", "batch_size": spec.batch_size, "image_size": spec.image_size}
    case["batches"] = spec.batches
    variants = []
    for strategy, used in _strategies(devices).items():
        variants.append(
            Variant(
                name=strategy,
                case={**case, "strategy": strategy},
                build=partial(_subject, spec, used),
                proven_at=[small],
                timed_at=load,
                devices=used,
            )
        )
    if len(devices) > 1:
        for stage, device in enumerate(devices):
            name = f"stage {stage} alone"
            build = partial(_stage_alone, spec.batches, stage, device)
            variants.append(
                Variant(name=name, case={**case, "strategy": name}, build=build, proven_at=[small], timed_at=load)
            )
    progress.doing(f"ResNet-50: {', '.join(variant.name for variant in variants)}")
    timings = time_rounds(variants, devices=devices, rule=spec.measure, energy=True)
    for timing in timings:
        yield timing.record()
    yield from peak_memory(timings, model="resnet50")


def _subject(spec: Spec, used: list[Device], load: Workload) -> Subject:
    """`batches` steps per call; equality is proven after `check_steps` calls."""
    batches, times = (1, spec.check_steps) if load.exact else (spec.batches, 1)
    model = ModelParallel(load.stages(), used, lr=load.lr)
    inputs = one_hot_images(load, used[0].torch, used[-1].torch)
    plainly = partial(plain, load, used[0].torch, [load.batch_size], batches * times)
    return training(
        "ResNet-50",
        partial(_train, model, *inputs, batches),
        model.state,
        partial(expected, "ResNet-50", plainly, exact=load.exact),
        times=times,
        steps=batches * times,
        devices=used,
        counts={} if load.exact else {name: batches * each for name, each in _counts(load).items()},
        module=model.stages[0],
    )


@functools.cache
def _counts(load: Workload) -> dict[str, float]:
    """What one step on two devices must do; the single device, in the place of both, does as much."""
    images, crossing = bytes_handed_over(load)
    whole = {"FLOPs": flops(step_without_data(load)), "received bytes": images + crossing}
    return {**whole, "updates": 1, "forwards": 1, "samples": load.batch_size}


def _stage_alone(batches: int, stage: int, device: Device, load: Workload) -> Subject:
    """One stage with an input like the one it gets in the whole network; its gradients are dropped, not applied."""
    first, *_ = (module.to(device.torch) for module in load.stages())
    images, _ = one_hot_images(load, device.torch, device.torch)
    with torch.no_grad():
        inputs = first(images) if stage else images
    alone = StageAlone(load.stages()[stage], inputs, device, needs_gradient=stage > 0)

    def plainly(exactly: bool) -> list[Tensor]:
        module, inputs, gradient = load.stages()[stage].to(device.torch), alone.inputs, alone.gradient
        if exactly:
            module, inputs, gradient = module.double(), inputs.double().flip(0), gradient.double().flip(0)
        return list(torch.autograd.grad(module(inputs), list(module.parameters()), gradient))

    def prove() -> Iterator[Check]:
        alone.run(1)
        device.synchronize()
        yield same_gradients("gradients of the stage", alone.gradients(), plainly(False), plainly(True))

    counts = {} if load.exact else {"FLOPs": batches * flops(step_without_data(load, stage)), "forwards": batches}
    return Subject(work=partial(alone.run, batches), prove=prove, expected=counts, module=alone.stage)


def _strategies(devices: list[Device]) -> dict[str, list[Device]]:
    both = {"model parallel": list(devices)} if len(devices) > 1 else {}
    return {"single device": [devices[0]] * 2, **both}


def _train(model: ModelParallel, inputs: Tensor, targets: Tensor, batches: int) -> None:
    for _ in range(batches):
        model.step(inputs, targets)
