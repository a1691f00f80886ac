"""A stage, or a block, alone on a device, which keeps it busy in a step; and schedules, played with such times.

Of each stage the forwards of a batch are timed alone, then its forwards and backwards, and its update; where there is
something to copy, also the activations' way to the next stage. All in the pipelines' own rounds, at the size of their
micro-batches: each round is played by itself, as if launching and waiting cost nothing, so that drift of the machine
does not come between what is played and what is measured.
"""

import copy
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from scalecard import progress
from scalecard.benchmarks.machine import copies
from scalecard.benchmarks.training.cut_model import balanced_cuts, crossing, cut, num_blocks
from scalecard.benchmarks.training.strategy import STEP, CannotBe, References, Setting, StrategyBuilder, in_train_mode
from scalecard.hardware.devices import Device
from scalecard.hardware.failures import or_on_host
from scalecard.hardware.host import is_out_of_memory
from scalecard.hardware.links import Link
from scalecard.measuring.case_variant import Subject, Timing, Variant
from scalecard.measuring.counting import operations
from scalecard.measuring.interleaved_timing import time_rounds
from scalecard.measuring.proof import same_gradients
from scalecard.measuring.stopping_rule import Rule
from scalecard.parallel.model_parallel import Given, StageAlone
from scalecard.records.axes import Case
from scalecard.records.record import Check, Record, Telemetry
from scalecard.records.schedules import SCHEDULES, Played, Schedule, gpipe, one_f_one_b, played_as_timed
from scalecard.records.statistics import FEWEST
from scalecard.records.strategies import MODEL_PARALLEL, OUR_1F1B, OUR_GPIPE, of
from scalecard.workloads import nested, reference
from scalecard.workloads.nested import doubled, flipped, mapped, rows
from scalecard.workloads.recipe import TEXTBOOKS, OptimizerSettings, Recipe
from scalecard.workloads.reference import trainable
from scalecard.workloads.stage_cuts import Cuts
from scalecard.workloads.workload import HOST, Workload

FORWARD, BOTH, UPDATE, COPY = "forward", "forward and backward", "update", "copy to the next stage"
STAGE = "stage_time"
APART = "the devices' memory is too small to time all of its stages in the same rounds"
Parts = Sequence[Mapping[str, Record]]  # of each stage, by their names
FIRST = OUR_GPIPE  # with which the stages of all pipelines are tried
PIPELINES = {FIRST: gpipe, OUR_1F1B: one_f_one_b}
PLAYED = {MODEL_PARALLEL: gpipe, **PIPELINES}  # of one micro-batch, every schedule is plain model parallelism


@functools.lru_cache(maxsize=2)
def given(workload: Workload, cuts: Cuts, device: torch.device) -> Sequence[Given]:
    """What each stage gets of a batch, computed on a device, once for stages that are built one after another.

    The loss is the last one's work. It is kept on the host: the device's memory is for what is timed.
    """
    on_host = partial(mapped, partial(torch.Tensor.to, device=HOST))
    value, targets = workload.batch(workload.batch_size, device)
    found = [on_host(value)]
    for stage in range(len(cuts)):  # with gradients, or PyTorch fuses what then has other types
        value = stage_of(workload.uncompiled, cuts, stage).to(device)(value).detach()
        found.append(on_host(value))
    *first, last = found
    return [*map(Given, first), Given(last, on_host(targets), workload.loss)]


def stage_of(workload: Workload, cuts: Cuts, index: int) -> nn.Module:
    """A copy of one of the stages, in the host's memory."""
    return copy.deepcopy(_stages(replace(workload, batch_size=1), cuts)[index])


@functools.lru_cache(maxsize=2)
def _stages(workload: Workload, cuts: Cuts) -> list[nn.Module]:
    """Those that are copied: the exact ones and those as timed, which are built in turns."""
    return cut(workload, cuts)[1]


def gradients(
    stage: int, device: Device, at: Setting, *, batches: int = 1, num_micro: int = 1, counting: bool = True
) -> Subject:
    """Forward and backward of so many batches, each of micro-batches like the setting's batch; gradients are dropped.

    In a trial, nothing is `counting`.
    """
    alone = _alone(stage, device, at)

    def prove() -> Iterator[Check]:
        alone.run(1)
        device.synchronize()
        plain, exact = _plain_and_exact(stage, at, alone, backward=True)
        yield same_gradients("gradients of the stage", alone.gradients(), plain, exact)

    each: dict[str, float] = {} if at.workload.exact else {"forwards": 1.0}
    each |= plain_flops(stage, device.torch, at) if each and counting else {}
    counts = {name: batches * num_micro * value for name, value in each.items()}
    work = partial(alone.run, batches, num_micro=num_micro)
    return Subject(work=work, prove=prove, expected=counts, module=alone.stage)


def forwards(stage: int, device: Device, at: Setting, *, num_micro: int) -> Subject:
    """The forwards of one batch of micro-batches like the setting's, with all that their backwards would need."""
    alone = _alone(stage, device, at)

    def prove() -> Iterator[Check]:
        ours = alone.forward(1).result()
        device.synchronize()
        plain, exact = _plain_and_exact(stage, at, alone, backward=False)
        yield same_gradients("output of the stage", [ours], plain, exact)

    each = {"forwards": 1}
    if isinstance(alone.given.inputs, Tensor):  # the rows of a dict are not seen
        each["samples"] = rows(alone.given.inputs)
    counts = {} if at.workload.exact else {name: num_micro * value for name, value in each.items()}
    return Subject(work=partial(alone.forward, num_micro), prove=prove, expected=counts, module=alone.stage)


def update(module: nn.Module, device: Device, optimizer: OptimizerSettings) -> Subject:
    """The update of the parameters of a stage, or of the whole model, with gradients that are all one."""
    parameters = trainable(module.to(device.torch))
    ones, made = [torch.ones_like(parameter) for parameter in parameters], optimizer.build(parameters)

    def once() -> None:
        for parameter, gradient in zip(parameters, ones, strict=True):
            parameter.grad = gradient
        made.step()

    def work() -> None:
        device.submit(once)

    def prove() -> Iterator[Check]:
        plain = [p.detach().clone() for p in parameters]
        exact = doubled(plain)
        for values in (plain, exact):  # which clips nothing: that takes the gradients of all stages
            reference.optimizer_step(replace(optimizer, clip=0.0), values)([torch.ones_like(value) for value in values])
        work()
        device.synchronize()
        yield same_gradients("parameters after an update", parameters, plain, exact)

    return Subject(work=work, prove=prove, expected=optimizer.updates(parameters), state=lambda: parameters)


def _alone(stage: int, device: Device, at: Setting) -> StageAlone:
    if at.workload.may_be_unused:
        raise CannotBe("a stage alone is proven by the gradient of every parameter, and some may get none")
    module, values = stage_of(at.workload, at.cuts, stage), given(at.workload, at.cuts, device.torch)[stage]
    return StageAlone(module, values, device, needs_gradient=stage > 0)


def plain_flops(stage: int, device: torch.device, at: Setting) -> dict[str, float]:
    """The operations of a stage's forward and backward; nothing if the device is too small."""
    try:
        plain = at.workload.with_precision("float32")  # the plain loop sees to that itself
        module = stage_of(plain, at.cuts, stage).to(device).train()
        values = given(at.workload, at.cuts, device)[stage].to(device)
        values = replace(values, loss=values.loss and plain.loss)
        if stage:
            values.inputs.requires_grad_()

        def gradient() -> None:
            with reference.autocast(device, at.workload.in_bf16):
                made = values.through(module)
            made.sum().backward()

        return operations(gradient, at.workload.flop_counts)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    return {}


def _plain_and_exact(stage: int, at: Setting, alone: StageAlone, *, backward: bool) -> list[list[Tensor]]:
    """What a plain stage makes of what a stage alone is given: the gradients of its parameters, or its output.

    As it is, and in float64. A model that cannot be in float64 gets its samples in the opposite order, if what it makes
    has a row for each. The host computes what the device cannot hold.
    """
    workload, plain, own = at.workload, at.workload.as_reference, alone.given
    by_row = rows(own.inputs) == rows(own.targets if own.loss else alone.gradient)

    def turned(output: Tensor) -> Tensor:
        """An output, or its gradient, in the opposite order; a loss has none."""
        return flipped(output) if by_row and not own.loss else output

    def compute(exactly: bool, place: torch.device) -> list[Tensor]:
        module, gradient = stage_of(plain, at.cuts, stage), alone.gradient
        values = replace(own, loss=own.loss and plain.loss)
        if exactly and workload.inexact:
            values, gradient = values.mapped(flipped) if by_row else values, turned(gradient)
        elif exactly:
            module, values, gradient = nested.exactly(module), values.mapped(doubled), doubled(gradient)
        module, values = module.to(place), values.to(place)
        with torch.set_grad_enabled(backward), reference.autocast(place, workload.in_bf16 and not exactly):
            output = values.through(module)
        if backward:
            return list(torch.autograd.grad(output, trainable(module), gradient.to(place)))
        return [turned(output) if exactly and workload.inexact else output]

    return [or_on_host(partial(compute, exactly), alone.device.torch) for exactly in (False, True)]


def time_blocks(workload: Workload, device: Device, rule: Rule, case: Case, *, num_micro: int = 1) -> list[Timing]:
    """Forward and backward of a batch of micro-batches in every block.

    In the fewest rounds that have an interval, and proven as timed only: where to cut asks for no more. The stages
    that are cut there are proven in float64 too.
    """
    count = num_blocks(workload.name)
    variants = [
        Variant(
            name=f"block {block}",
            case={**case, "block": block},
            build=partial(gradients, block, device, num_micro=num_micro),
            timed_at=Setting(workload, count, cuts=tuple(range(1, count))),
        )
        for block in range(count)
    ]
    rounds = min(rule.min_rounds, FEWEST)
    progress.doing(f"each of {count} blocks alone, to find where to cut")
    timings = time_rounds(variants, devices=[device], rule=replace(rule, min_rounds=rounds, max_rounds=rounds))
    given.cache_clear()
    return timings


def subject(
    part: str, stage: int, devices: Sequence[Device], at: Setting, *, num_micro: int, counting: bool = True
) -> Subject:
    """One part of a stage, of so many micro-batches like the setting's batch; of a copy, of one."""
    workload = at.workload
    if part == COPY:
        link = Link(devices[stage], devices[stage + 1])
        size = crossing(workload, at.cuts, workload.batch_size, devices[stage].torch)[stage]
        return copies.subject_on_link(link, workload.seed, size)
    if part == UPDATE:
        return update(stage_of(workload, at.cuts, stage), devices[stage], workload.optimizer_settings)
    if part == FORWARD:
        return forwards(stage, devices[stage], at, num_micro=num_micro)
    return gradients(stage, devices[stage], at, num_micro=num_micro, counting=counting)


def _of_batches(stage: int, devices: Sequence[Device]) -> list[str]:
    """The parts that depend on the batch; CPU workers share their memory, so nothing is copied."""
    copied = stage < len(devices) - 1 and devices[stage].torch.type != "cpu"
    return [FORWARD, BOTH, *([COPY] if copied else [])]


def alone(
    at: Setting, check: Setting, devices: Sequence[Device], sizes: Sequence[int], case: Case
) -> Iterator[Variant]:
    """What is played, at each of these split sizes, which divide the batch; proven in float64 at `check`."""
    used, whole = devices[: at.devices], at.workload.batch_size
    for stage in range(at.devices):
        for part, size in [(UPDATE, whole), *((part, size) for size in sizes for part in _of_batches(stage, used))]:
            own: Case = {"stage": stage, "batch_size": whole, **case}
            own |= {"part": part} if part == UPDATE else {"split_size": size, "part": part}
            yield Variant(
                name=" ".join(f"{axis} {value}" for axis, value in own.items()),
                case=own,
                build=partial(subject, part, stage, used, num_micro=whole // size),
                proven_at=[check] if part in (FORWARD, BOTH) else [],
                timed_at=replace(at, workload=replace(at.workload, batch_size=size)),
                metered=False,
            )


def records(
    found: Sequence[Record], num_stages: int, batch_size: int, sizes: Sequence[int], case: Case
) -> Iterator[Record]:
    """`played_time` and `played_bubble` of every schedule at every split size."""
    for size in sizes:
        own: Case = {"split_size": size, "batch_size": batch_size, **case}
        parts = _of_stages(found, num_stages, own)
        for name, schedule in SCHEDULES.items():
            yield from _play(schedule, parts, batch_size // size, {"strategy": name, **own})


def _of_stages(found: Iterable[Record], num_stages: int, case: Case) -> Parts:
    """The parts of each stage among these records; an update does not depend on the split size, and has fewer axes."""
    parts: list[dict[str, Record]] = [{} for _ in range(num_stages)]
    for one in found:
        if one.metric == STAGE and {axis for axis, _ in one.case.items() - case.items()} == {"stage", "part"}:
            parts[one.integer("stage")][one.text("part")] = one
    return parts


def _play(schedule: Schedule, parts: Parts, num_micro: int, case: Case) -> Iterator[Record]:
    """`played_time` and `played_bubble` (the share of it in which devices idle) of a schedule.

    One sample per round, from the times that the parts had in it.
    """
    every = [part for stage in parts for part in stage.values()]
    missing = next((part for part in every if part.status != "ok"), None)
    rounds = {part.telemetry[0].rounds_id for part in every if part.status == "ok"}
    if missing:
        yield replace(missing, case=case, metric="played_time")
    elif len(rounds) > 1:
        yield Record.skipped(case, APART, metric="played_time")
    else:
        one_by_one = [_round(schedule, parts, num_micro, number) for number in range(len(every[0].samples[0]))]
        computed = [Telemetry(rounds_id=rounds.pop(), no_joules="computed, not measured")]
        of = partial(Record, case=case, telemetry=computed)
        yield of(metric="played_time", unit="s", samples=[[one.makespan for one in one_by_one]])
        yield of(metric="played_bubble", unit="fraction", samples=[[one.bubble for one in one_by_one]])


def _round(schedule: Schedule, parts: Parts, num_micro: int, number: int) -> Played:
    """One round, played.

    A batch that is not cut goes to and fro without anything beside it, so the two together are enough.
    """

    def seconds(part: str) -> list[float]:
        return [stage[part].samples[0][number] if part in stage else 0.0 for stage in parts]

    forwards = seconds(FORWARD if FORWARD in parts[0] else BOTH)
    return played_as_timed(schedule, forwards, seconds(BOTH), seconds(COPY)[:-1], num_micro, seconds(UPDATE))


def builders(devices: Sequence[Device]) -> Iterator[StrategyBuilder]:
    """Each stage's update and, for micro-batches and for the whole batch, what depends on it.

    Of the whole batch, forward and backward are timed together only: nothing comes between them.
    """
    for kind in (FIRST, MODEL_PARALLEL):
        for stage in range(len(devices)):
            for part in (UPDATE, *_of_batches(stage, devices)):
                if kind.schedule or part != FORWARD:
                    build = partial(_balanced, part, stage, devices)
                    axes: Case = {"stage": stage, "part": part}
                    yield StrategyBuilder(kind, build, metric=STAGE, axes=axes, of_batch=part != UPDATE)


def _balanced(part: str, stage: int, devices: Sequence[Device], references: References, at: Setting) -> Subject:
    micro = replace(at.workload, batch_size=at.split_size)
    own = Setting(micro, at.devices, cuts=balanced_cuts(at.workload, at.devices))
    made = subject(part, stage, devices, own, num_micro=at.num_micro, counting=references.counting)
    return in_train_mode(made, at.workload, [made.module] if made.module else [])


def schedules_played(found: Sequence[Record], recipe: Recipe = TEXTBOOKS) -> Iterator[Record]:
    """`played_time` and `played_bubble` of every such strategy, from its stages' times among these records.

    The case is that of its step time. If no strategy could cut the model, one record says why.
    """
    steps = [record for record in found if record.metric == STEP and of(record.case["strategy"]) in PLAYED]
    if steps and all(step.status != "ok" for step in steps):
        yield replace(steps[0], case={axis: steps[0].case[axis] for axis in ("workload", "devices")}, metric=STAGE)
    for step in (step for step in steps if step.status == "ok"):
        case: Case = {axis: value for axis, value in step.case.items() if axis not in ("strategy", "unit", "units")}
        kind = of(step.case["strategy"])
        # Of the pipelines' micro-batches, whose forwards were timed; 0 if they were not.
        forwards = (r for r in found if r.metric == STAGE and r.matches(part=FORWARD, **case))
        micro = next((one.integer("split_size") for one in forwards), 0)
        size = micro if kind in PIPELINES else step.integer("batch_size")
        alone = _of_stages(found, step.integer("devices"), {**case, "split_size": size})
        if all(BOTH in stage for stage in alone):
            note = "without the clipping of gradients" if recipe.clip else ""
            for one in _play(PLAYED[kind], alone, step.integer("batch_size") // size, step.case):
                yield replace(one, note=one.note or note)
        else:
            accumulates = recipe.accumulate > 1 and kind not in PIPELINES
            why = "it forwards one micro-batch after another" if accumulates else _why_not(steps, step.case)
            note = f"its stages were not timed alone: {why}"
            yield Record.skipped(step.case, note, metric="played_time")


def _why_not(steps: Sequence[Record], case: Case) -> str:
    """Why the strategy with which such stages are tried could not be used at this scaling, if that was it."""
    kind = FIRST if of(case["strategy"]) in PIPELINES else MODEL_PARALLEL
    tried = {"strategy": kind.name, "scaling": case["scaling"]}
    return next((step.why for step in steps if step.status != "ok" and step.matches(**tried)), "the time was over")
