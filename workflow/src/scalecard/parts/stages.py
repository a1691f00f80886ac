"""A stage of ResNet-50, or a block, alone on a device: what keeps the device busy in a step, without any waiting."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

from scalecard import progress
from scalecard.hardware.devices import Device
from scalecard.measuring.counting import flops
from scalecard.measuring.decisions import decided
from scalecard.measuring.proof import same_gradients
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.rule import Rule
from scalecard.measuring.timing import Timing
from scalecard.measuring.variant import Subject, Variant
from scalecard.records.record import Case, Check, Record
from scalecard.records.statistics import FEWEST
from scalecard.training.model_parallel import StageAlone, UpdateAlone
from scalecard.training.models import AFTER_LAYER2, NUM_BLOCKS
from scalecard.training.partition import Cuts, balanced
from scalecard.training.resnet50 import Workload, stage_inputs, step_without_data

TEXTBOOK, BALANCED = "after layer2", "balanced"  # cuts

_inputs = functools.lru_cache(maxsize=2)(stage_inputs)  # the blocks follow one another, and share one forward


def gradients(stage: int, device: Device, load: Workload, *, batches: int = 1, num_micro: int = 1) -> Subject:
    """Forward and backward of so many batches, each of micro-batches like the load's batch; gradients are dropped."""
    alone = _alone(stage, device, load)

    def prove() -> Iterator[Check]:
        alone.run(1)
        device.synchronize()
        inputs, gradient = alone.inputs, alone.gradient
        plain = _slopes(_fresh(load, stage, device), inputs, gradient)
        exact = _slopes(_fresh(load, stage, device).double(), inputs.double().flip(0), gradient.double().flip(0))
        yield same_gradients("gradients of the stage", alone.gradients(), plain, exact)

    each = {} if load.exact else {"FLOPs": flops(step_without_data(load, stage)), "forwards": 1.0}
    counts = {name: batches * num_micro * value for name, value in each.items()}
    work = partial(alone.run, batches, num_micro=num_micro)
    return Subject(work=work, prove=prove, expected=counts, module=alone.stage)


def forwards(stage: int, device: Device, load: Workload, *, num_micro: int) -> Subject:
    """The forwards of one batch of micro-batches like the load's batch, with all that their backwards would need."""
    alone = _alone(stage, device, load)

    def prove() -> Iterator[Check]:
        ours = alone.forward(1).result()
        device.synchronize()
        with torch.no_grad():
            plain = _fresh(load, stage, device)(alone.inputs)
            exact = _fresh(load, stage, device).double()(alone.inputs.double().flip(0)).flip(0)
        yield same_gradients("output of the stage", [ours], [plain], [exact])

    counts = {} if load.exact else {"forwards": num_micro, "samples": num_micro * load.batch_size}
    return Subject(work=partial(alone.forward, num_micro), prove=prove, expected=counts, module=alone.stage)


def update(stage: int, device: Device, load: Workload) -> Subject:
    """The update of the stage's parameters."""
    alone = UpdateAlone(load.stage(stage), device, lr=load.lr)

    def prove() -> Iterator[Check]:
        before = [p.detach().clone() for p in alone.parameters]
        alone.run()
        device.synchronize()
        plain, exact = [p - load.lr for p in before], [p.double() - load.lr for p in before]
        yield same_gradients("parameters after an update", alone.parameters, plain, exact)

    return Subject(work=alone.run, prove=prove, expected={"updates": 1}, state=lambda: alone.parameters)


def _alone(stage: int, device: Device, load: Workload) -> StageAlone:
    inputs = _inputs(load, device.torch)[stage]
    return StageAlone(load.stage(stage), inputs, device, needs_gradient=stage > 0)


def _fresh(load: Workload, stage: int, device: Device) -> nn.Module:
    return load.stage(stage).to(device.torch)


def _slopes(module: nn.Module, inputs: Tensor, gradient: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(module(inputs), list(module.parameters()), gradient))


def time_blocks(load: Workload, device: Device, rule: Rule, case: Case, *, num_micro: int = 1) -> list[Timing]:
    """Forward and backward of a batch of micro-batches in every block.

    In the fewest rounds that have an interval, and proven as timed only: where to cut asks for no more. The stages
    that are cut there are proven in float64 too.
    """
    every = tuple(range(1, NUM_BLOCKS))
    variants = [
        Variant(
            name=f"block {block}",
            case={**case, "block": block},
            build=partial(gradients, block, device, num_micro=num_micro),
            timed_at=load.cut(every),
        )
        for block in range(NUM_BLOCKS)
    ]
    rounds = min(rule.min_rounds, FEWEST)
    short = replace(rule, min_rounds=rounds, max_rounds=rounds)
    progress.doing(f"each of {NUM_BLOCKS} blocks alone, to find where to cut")
    timings = time_rounds(variants, devices=[device], rule=short)
    _inputs.cache_clear()
    return timings


def chosen_cuts(blocks: Callable[[], Sequence[Timing]], counts: Sequence[int]) -> list[tuple[str, Cuts]]:
    """The textbook's cut for two devices, then the balanced one for each of these numbers of devices, if it is known.

    That is the one whose slowest stage is fastest. It is found by the times of the blocks in the run's first process:
    they scatter, and processes that cut elsewhere would not measure the same case.
    """
    if not counts:
        return []

    def decide() -> list[Cuts]:
        timings = blocks()
        if not all(timing.completion for timing in timings):  # out of memory, or of time
            return []
        times = [median(timing.completion) for timing in timings]
        return [balanced(times, count) for count in counts if count <= len(times)]

    return [(TEXTBOOK, AFTER_LAYER2), *((BALANCED, tuple(cuts)) for cuts in decided("cuts", decide))]


def not_cut(blocks: Sequence[Timing], counts: Sequence[int], case: Case) -> Iterator[Record]:
    """What could not be balanced, and why: a block without a time, or fewer blocks than devices."""
    missing = next((timing.record() for timing in blocks if not timing.completion), None)
    for count in counts:
        own: Case = {**case, "devices": count, "cut": BALANCED}
        if missing:
            yield replace(missing, case=own, note=f"a block has no time: {missing.note}")
        elif count > NUM_BLOCKS:
            yield Record.skipped(own, f"{NUM_BLOCKS} blocks do not make {count} stages")


def noted(record: Record, load: Workload) -> Record:
    """A record of a cut model, with the blocks of each stage."""
    return replace(record, note=f"blocks {load.blocks}") if record.status == "ok" else record
