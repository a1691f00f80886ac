"""The strategies of one process that drives several devices: model parallelism, our pipelines, nn.DataParallel."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from torch import nn

from scalecard.benchmarks.training.cut_model import crossing, cut
from scalecard.benchmarks.training.reference_cache import Plainly, Setting
from scalecard.benchmarks.training.stage_timing import PIPELINES, parts
from scalecard.benchmarks.training.strategy import LOCAL, CannotBe, StrategyBuilder, trained
from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Subject
from scalecard.parallel.model_parallel import ModelParallel
from scalecard.parallel.pipeline import ScheduledPipeline
from scalecard.parallel.schedules import Schedule
from scalecard.parallel.step import Step, state_of
from scalecard.records.strategies import DATA_PARALLEL, MODEL_PARALLEL, SINGLE
from scalecard.workloads.nested import leaves
from scalecard.workloads.reference import trainable

ON_CPU = "nn.DataParallel is a silent no-op on a CPU: it would time the single device again"


def strategies(devices: Sequence[Device], *, stages: bool = True) -> Iterator[StrategyBuilder]:
    """Those that use all of these devices, and their `stages` alone; of one device also steps over smaller batches."""
    if len(devices) == 1:
        yield StrategyBuilder(SINGLE, partial(_whole, devices))
        yield StrategyBuilder(SINGLE, partial(_whole, devices), metric=LOCAL)
        return
    yield StrategyBuilder(DATA_PARALLEL, partial(_data_parallel, devices))
    yield StrategyBuilder(MODEL_PARALLEL, partial(_model_parallel, devices))
    for pipeline, schedule in PIPELINES.items():
        yield StrategyBuilder(pipeline, partial(_pipeline, schedule, devices))
    yield from parts(devices) if stages else ()


def _whole(devices: Sequence[Device], plainly: Plainly, at: Setting) -> Subject:
    """Everything on one device."""
    model = at.load.network(devices[0].torch)
    return _subject(ModelParallel, model, [model], devices[:1], ModelParallel.step, plainly, at)


def _model_parallel(devices: Sequence[Device], plainly: Plainly, at: Setting) -> Subject:
    return _subject(ModelParallel, *cut(at.load, at.devices), devices, ModelParallel.step, plainly, at, crossings=1)


def _pipeline(schedule: Schedule, devices: Sequence[Device], plainly: Plainly, at: Setting) -> Subject:
    step = partial(ScheduledPipeline.pipelined_step, split_size=at.split_size, schedule=schedule)
    return _subject(ScheduledPipeline, *cut(at.load, at.devices), devices, step, plainly, at, crossings=2)


def _subject(
    strategy: type[ModelParallel],
    model: nn.Module,
    stages: Sequence[nn.Module],
    devices: Sequence[Device],
    step: Callable[..., None],
    plainly: Plainly,
    at: Setting,
    *,
    crossings: int = 0,
) -> Subject:
    """`crossings`: how often what stages hand over is copied by us; autograd hands gradients back, unless we do."""
    load = at.load
    staged = strategy(stages, devices[: at.devices], lr=load.lr, loss=load.loss)
    inputs, targets = load.batch(load.batch_size, staged.devices[0].torch, staged.devices[-1].torch)
    counts: dict[str, float] = {"updates": 1, "forwards": len(at.micro_sizes())}
    if not load.exact:
        crossing_bytes = crossing(load, at.devices, at.micro_sizes()) if crossings else 0
        counts |= plainly.counts(load, at.micro_sizes())
        counts["received bytes"] = sum(leaf.nbytes for leaf in leaves(inputs)) + crossings * crossing_bytes
    return trained(
        at,
        partial(step, staged, inputs, targets),
        partial(state_of, model),
        plainly.at(load, at.micro_sizes()),
        plainly=plainly,
        modules=stages,
        devices=staged.devices,
        counts=counts,
    )


def _data_parallel(devices: Sequence[Device], plainly: Plainly, at: Setting) -> Subject:
    """DataParallel's threads are not seen, so their operations are not counted."""
    load, first = at.load, devices[0]
    if first.torch.type == "cpu":
        raise CannotBe(ON_CPU)
    model = load.network(first.torch)
    wrapped = nn.DataParallel(model, device_ids=[device.torch for device in devices[: at.devices]])
    step = Step(wrapped, trainable(model), *load.batch(load.batch_size, first.torch), loss=load.loss, lr=load.lr)
    return trained(
        at,
        partial(first.submit, step),
        partial(state_of, model),
        plainly.at(load, at.shares()),
        plainly=plainly,
        modules=[wrapped],
        devices=devices,
        counts={"updates": 1, "forwards": 1},
    )
