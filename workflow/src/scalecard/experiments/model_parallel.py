"""What does cutting a model over several devices cost, and how long does each device idle?

ResNet-50 trained one minibatch at a time: on one device; cut after layer2 over two, as in the textbook; and over 2..N
devices where the cut is balanced. For that every block is timed alone first, and the cut is the one whose slowest stage
is fastest. Each stage is timed alone too, which shows how long its device is busy. Inputs and targets are created on
their devices before the clock starts.

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
from scalecard.benchmarks.training.cuts import chosen_cuts, not_cut, time_blocks, with_blocks
from scalecard.benchmarks.training.plain_steps import Plainly
from scalecard.benchmarks.training.stages import gradients
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine, device_counts
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.counting import flops
from scalecard.measuring.failures import guarded
from scalecard.measuring.interleaved_timing import time_rounds
from scalecard.measuring.peak_memory import peak_memory
from scalecard.measuring.proof import expected
from scalecard.measuring.spec import Common, Positive, Rate
from scalecard.measuring.training_subject import training
from scalecard.parallel.model_parallel import ModelParallel
from scalecard.parallel.resnet50 import Workload, bytes_handed_over, one_hot_images, step_without_data
from scalecard.records.record import Case, Record
from scalecard.records.strategies import MODEL_PARALLEL, SINGLE
from scalecard.workloads import reference
from scalecard.workloads.models import toy_stages


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
    """The toy, then ResNet-50: time, stages and blocks alone, peak memory."""
    if machine.num_devices < 2:
        for part in ("toy", "resnet50"):
            case: Case = {"model": part, "strategy": MODEL_PARALLEL.name, "devices": 2}
            yield Record.skipped(case, "needs 2 devices, this machine has 1")
    with open_devices(machine) as devices:
        yield from _toy(spec, devices[:2])
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
    load = Workload.of(spec)
    case: Case = {"model": "resnet50", "batch_size": spec.batch_size, "image_size": spec.image_size}
    counts = device_counts(len(devices))[1:]
    blocks = time_blocks(load, devices[0], spec.measure, case) if counts else []
    for timing in blocks:
        yield timing.record("block_time")
    case["batches"] = spec.batches
    plainly = Plainly(devices[0].torch, spec.check_steps, batches=spec.batches)
    variants = [_variant(spec, [devices[0]] * 2, plainly, load, {**case, "strategy": SINGLE.name})]
    for name, cuts in chosen_cuts(lambda: blocks, counts):
        used = devices[: len(cuts) + 1]
        variants += _cut(spec, used, plainly, load.cut(cuts), {**case, "devices": len(used), "cut": name})
    progress.doing(f"ResNet-50: {', '.join(variant.name for variant in variants)}")
    timings = time_rounds(variants, devices=devices, rule=spec.measure, energy=True)
    for timing in timings:
        yield with_blocks(timing.record(), timing.variant.timed_at) if "cut" in timing.variant.case else timing.record()
    yield from not_cut(blocks, counts, {**case, "strategy": MODEL_PARALLEL.name})
    yield from peak_memory(timings, model="resnet50")


def _variant(spec: Spec, used: list[Device], plainly: Plainly, load: Workload, case: Case) -> Variant:
    name = ", ".join(str(case[axis]) for axis in ("strategy", "devices", "cut") if axis in case)
    build = partial(_subject, spec, used, plainly)
    small = Workload.of_check(spec).cut(load.cuts)
    return Variant(name=name, case=case, build=build, proven_at=[small], timed_at=load, devices=used)


def _cut(spec: Spec, used: list[Device], plainly: Plainly, load: Workload, case: Case) -> Iterator[Variant]:
    """Model parallelism over these devices, and each of its stages alone."""
    yield _variant(spec, used, plainly, load, {**case, "strategy": MODEL_PARALLEL.name})
    for stage, device in enumerate(used):
        yield Variant(
            name=f"stage {stage} alone, {case['devices']}, {case['cut']}",
            case={**case, "strategy": "stage alone", "stage": stage},
            build=partial(gradients, stage, device, batches=spec.batches),
            proven_at=[Workload.of_check(spec).cut(load.cuts)],
            timed_at=load,
        )


def _subject(spec: Spec, used: list[Device], plainly: Plainly, load: Workload) -> Subject:
    """`batches` steps per call; equality is proven after `check_steps` calls."""
    batches = 1 if load.exact else spec.batches
    model = ModelParallel(load.stages(), used, lr=load.lr)
    inputs = one_hot_images(load, used[0].torch, used[-1].torch)
    return training(
        f"ResNet-50, cut before blocks {load.cuts}",
        partial(_train, model, *inputs, batches),
        model.state,
        plainly.of(load, [load.batch_size]),
        times=plainly.steps(load) // batches,
        steps=plainly.steps(load),
        devices=used,
        counts={} if load.exact else {name: batches * each for name, each in _counts(load).items()},
        module=model.stages[0],
    )


@functools.cache
def _counts(load: Workload) -> dict[str, float]:
    """What one step must do; the single device, in the place of all, does as much."""
    images, crossing = bytes_handed_over(load)
    whole = {"FLOPs": flops(step_without_data(load)), "received bytes": images + crossing}
    return {**whole, "updates": 1, "forwards": 1, "samples": load.batch_size}


def _strategies(devices: list[Device]) -> dict[str, list[Device]]:
    both = {MODEL_PARALLEL.name: list(devices)} if len(devices) > 1 else {}
    return {SINGLE.name: [devices[0]] * 2, **both}


def _train(model: ModelParallel, inputs: Tensor, targets: Tensor, batches: int) -> None:
    for _ in range(batches):
        model.step(inputs, targets)
