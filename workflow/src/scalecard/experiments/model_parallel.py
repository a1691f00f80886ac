"""What does cutting a model over several devices cost, and how long does each device idle?

ResNet-50 trained one minibatch at a time: on one device; cut after layer2 over two, as in the textbook; and over 2..N
devices where the cut is balanced. For that every block is timed alone first, and the cut is the one whose slowest stage
is fastest. Each stage is timed alone too, which shows how long its device is busy. Inputs and targets are created on
their devices before the clock starts. One device and the textbook's cut are also timed as the tutorial prints them: on
default streams, and with batches that are drawn on the host while the clock runs (`tutorial_time`).

The answer would be wrong if the cut network computed something else (every variant is proven against a plain loop in
float64, with batch normalisation in eval mode, and as it is timed), or if it did not do all of its work (its
operations, samples, updates and the bytes handed over are counted).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from scalecard import progress
from scalecard.benchmarks.training.cut_model import OfResNet50, chosen_cuts, not_cut, resnet50, with_blocks
from scalecard.benchmarks.training.pipelines import subject, tutorial_variants
from scalecard.benchmarks.training.stage_timing import gradients, time_blocks
from scalecard.benchmarks.training.strategy import References, Setting
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine, device_counts
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.interleaved_timing import round_records, time_rounds
from scalecard.measuring.memory import peak_memory
from scalecard.measuring.prepare import guarded, too_few_devices
from scalecard.measuring.spec import Positive
from scalecard.parallel.model_parallel import ModelParallel
from scalecard.records.axes import Case
from scalecard.records.record import Record
from scalecard.records.strategies import MODEL_PARALLEL, SINGLE
from scalecard.workloads.stage_cuts import Cuts
from scalecard.workloads.workload import built_in


@dataclass(frozen=True, kw_only=True)
class Spec(OfResNet50):
    batches: Positive
    toy_batch_size: Positive


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """The toy, then ResNet-50: time, stages and blocks alone, peak memory."""
    for part in ("toy", spec.model):
        case: Case = {"workload": part, "strategy": MODEL_PARALLEL.name, "devices": 2}
        yield from too_few_devices(case, machine, metric="step_time")
    with open_devices(machine) as devices:
        yield from guarded(_toy(spec, devices[:2]), {"workload": "toy"}, metric="step_time")
        yield from guarded(_resnet50(spec, devices), {"workload": spec.model}, metric="step_time")


def _toy(spec: Spec, devices: list[Device]) -> Iterator[Record]:
    toy = built_in("toy", seed=spec.seed, lr=spec.lr, batch_size=spec.toy_batch_size)
    references, variants = References(devices[0].torch, spec.check_steps), []
    ways: list[tuple[str, Cuts]] = [(SINGLE.name, ()), (MODEL_PARALLEL.name, (1,))]
    for strategy, cuts in ways[: len(devices)]:
        case: Case = {"workload": "toy", "strategy": strategy, "batch_size": spec.toy_batch_size}
        exact, timed = (Setting(workload, len(cuts) + 1, cuts=cuts) for workload in (replace(toy, exact=True), toy))
        build = partial(subject, ModelParallel, devices, references)
        variants.append(Variant(name=strategy, case=case, build=build, proven_at=[exact], timed_at=timed))
    progress.doing("the toy model")
    yield from round_records(variants, "step_time", devices=devices, rule=spec.measure)


def _resnet50(spec: Spec, devices: list[Device]) -> Iterator[Record]:
    workload = resnet50(spec)
    case: Case = {"workload": spec.model, "batch_size": spec.batch_size, "image_size": spec.image_size}
    counts = device_counts(len(devices))[1:]
    blocks = time_blocks(workload, devices[0], spec.measure, case) if counts else []
    for timing in blocks:
        yield timing.record("block_time")
    timed: Case = {**case, "batches": spec.batches}
    references = References(devices[0].torch, spec.check_steps)
    variants = [_variant(spec, devices[:1], references, (), {**timed, "strategy": SINGLE.name})]
    for name, cuts in chosen_cuts(spec.model, lambda: blocks, counts):
        used = devices[: len(cuts) + 1]
        variants += _cut(spec, used, references, cuts, {**timed, "devices": len(used), "cut": name})
    every = [*variants, *tutorial_variants(variants, devices, references, spec.batches)]
    progress.doing(f"{spec.model}: {', '.join(variant.name for variant in every)}")
    timings = time_rounds(every, devices=devices, rule=spec.measure, energy=True)
    for place, timing in enumerate(timings):
        record = timing.record("step_time" if place < len(variants) else "tutorial_time")
        cuts = timing.variant.timed_at.cuts
        yield with_blocks(record, cuts) if cuts else record
    yield from not_cut(spec.model, blocks, counts, {**timed, "strategy": MODEL_PARALLEL.name})
    yield from peak_memory(timings[: len(variants)], workload=spec.model)


def _variant(spec: Spec, used: list[Device], references: References, cuts: Cuts, case: Case) -> Variant:
    """`batches` steps per call; equality is proven of `check_steps` steps in float64, and of one as timed."""

    def build(at: Setting) -> Subject:
        return subject(ModelParallel, used, references, at, repeats=spec.batches)

    timed, small = (Setting(resnet50(spec, exact=exact), len(used), cuts=cuts) for exact in (False, True))
    name = ", ".join(str(case[axis]) for axis in ("strategy", "devices", "cut") if axis in case)
    return Variant(name=name, case=case, build=build, proven_at=[small], timed_at=timed, devices=used)


def _cut(spec: Spec, used: list[Device], references: References, cuts: Cuts, case: Case) -> Iterator[Variant]:
    """Model parallelism over these devices, and each of its stages alone."""
    whole = _variant(spec, used, references, cuts, {**case, "strategy": MODEL_PARALLEL.name})
    yield whole
    for stage, device in enumerate(used):
        yield Variant(
            name=f"stage {stage} alone, {case['devices']}, {case['cut']}",
            case={**case, "strategy": "stage alone", "stage": stage},
            build=partial(gradients, stage, device, batches=spec.batches),
            proven_at=whole.proven_at,
            timed_at=whole.timed_at,
        )
