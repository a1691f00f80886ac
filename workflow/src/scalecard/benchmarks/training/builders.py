"""Builders of every strategy of the catalogue: by one process on its devices, and by ranks, one per device."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from scalecard.benchmarks.machine import collectives
from scalecard.benchmarks.training import cut_model, pipelines, stage_timing
from scalecard.benchmarks.training.one_process import ON_CPU, data_parallel
from scalecard.benchmarks.training.strategy import (
    EXCHANGE,
    LOCAL,
    UNSYNCHRONISED,
    UPDATE,
    CannotBe,
    References,
    Setting,
    StrategyBuilder,
    trained,
)
from scalecard.distributed.context import RankContext
from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Subject, local
from scalecard.parallel import sharded
from scalecard.parallel.ddp import BUCKET_BYTES, wrap
from scalecard.parallel.model_parallel import ModelParallel
from scalecard.parallel.step import BatchCycle, Step, state_of
from scalecard.parallel.torch_pipelining import mesh
from scalecard.records import strategies as kinds
from scalecard.records.record import Check
from scalecard.workloads.meta import is_on_meta
from scalecard.workloads.nested import Tree, sizes
from scalecard.workloads.reference import trainable
from scalecard.workloads.workload import HOST, Workload

REPLICAS = "the replicas of nn.DataParallel are made anew for every forward, in which they would be compiled anew"
UNUSED = "FSDP2 waits for every parameter's gradient: let every expert take part, with weight 0, to have it compared"
MOST_IN_ONE = 0.9  # of the parameters
ONE_UNIT = "nearly all parameters are gathered at once; let blocks(model) return repeated layers to need less memory"
SPARSE = "FSDP2 takes no sparse gradients: make the embedding with sparse=False to have it compared"
ON_HOST = "on a CPU everything is in the host's memory already"


def in_process(devices: Sequence[Device], *, stages: bool = True) -> Iterator[StrategyBuilder]:
    """Builders of the strategies that use all of these devices, and of their `stages` alone.

    Of one device also steps over smaller batches, and the update by itself.
    """
    whole = partial(pipelines.subject, ModelParallel, devices)
    if len(devices) == 1:
        yield StrategyBuilder(kinds.SINGLE, whole)
        yield StrategyBuilder(kinds.SINGLE, whole, metric=LOCAL)
        yield StrategyBuilder(kinds.SINGLE, partial(_update, devices[0]), metric=UPDATE, of_batch=False)
        return
    yield StrategyBuilder(kinds.DATA_PARALLEL, partial(_nn_data_parallel, devices))
    executors: dict[kinds.Strategy, pipelines.Executor] = {kinds.MODEL_PARALLEL: ModelParallel}
    executors |= {kinds.OUR_GPIPE: pipelines.OURS["gpipe"], kinds.OUR_1F1B: pipelines.OURS["1f1b"]}
    for kind, executor in executors.items():
        yield StrategyBuilder(kind, partial(_balanced, executor, devices))
    yield from stage_timing.builders(devices) if stages else ()


def _update(device: Device, _references: References, at: Setting) -> Subject:
    return stage_timing.update(at.workload.network(HOST), device, at.workload.optimizer_settings)


def _balanced(executor: pipelines.Executor, devices: Sequence[Device], references: References, at: Setting) -> Subject:
    cuts = cut_model.balanced_cuts(at.workload, at.devices)
    return pipelines.subject(executor, devices, references, replace(at, cuts=cuts))


def _nn_data_parallel(devices: Sequence[Device], references: References, at: Setting) -> Subject:
    """DataParallel's threads are not seen, so their operations are not counted."""
    workload, first = at.workload, devices[0]
    if first.torch.type == "cpu":
        raise CannotBe(ON_CPU)
    if workload.recipe.compile:
        raise CannotBe(REPLICAS)
    model = workload.network(first.torch)
    wrapped = data_parallel(model, [device.torch for device in devices[: at.devices]])
    batch = workload.batch(workload.batch_size, first.torch)
    optimizer = workload.optimizer_settings
    micro_sizes = workload.micro_batch_sizes(workload.batch_size)
    scattered = [part for micro in micro_sizes for part in sizes(micro, -(-micro // at.devices))]
    # The loss is that of all outputs together; batch normalisation that is trained sees what each replica has.
    parts = micro_sizes if workload.divisible(model) else scattered
    step = Step.of(workload, wrapped, batch)
    return trained(
        at,
        partial(first.submit, step),
        partial(state_of, model),
        references.at(workload, parts),
        references=references,
        modules=[wrapped],
        devices=devices,
        counts={"forwards": len(micro_sizes), "replicas": len(scattered), **optimizer.counts(trainable(model))},
        optimizers=[step.optimizer],
    )


def on_ranks(ctx: RankContext) -> Iterator[StrategyBuilder]:
    """Builders of the strategies of these ranks, and of DDP's computing and exchange of gradients alone.

    With four or more ranks also products of two kinds, and over nodes FSDP within each.
    """
    yield StrategyBuilder(kinds.DDP, partial(_ddp, ctx))
    yield StrategyBuilder(kinds.DDP, partial(_alone, ctx), metric=UNSYNCHRONISED)
    yield StrategyBuilder(kinds.DDP, partial(_exchange, ctx), metric=EXCHANGE)
    yield StrategyBuilder(kinds.ZERO_1, partial(_zero_1, ctx))
    for kind in (kinds.FSDP_GRADIENTS, kinds.FSDP_PARAMETERS, kinds.FSDP_OFFLOAD):
        yield StrategyBuilder(kind, partial(_fsdp, kind, ctx), remark=_one_unit)
    if ctx.spans_nodes and ctx.world_size > ctx.layout.nodes:
        yield StrategyBuilder(kinds.HSDP, partial(_fsdp, kinds.HSDP, ctx, replicas=ctx.layout.nodes))
    yield StrategyBuilder(kinds.TENSOR_PARALLEL, partial(_tensor_parallel, ctx))
    for kind in (kinds.TORCH_GPIPE, kinds.TORCH_1F1B, kinds.TORCH_INTERLEAVED):
        yield _pipeline(kind, ctx)
    if ctx.world_size >= 4 and ctx.world_size % 2 == 0:
        replicas = ctx.world_size // kinds.DATA_X_TENSOR.replica_devices
        yield StrategyBuilder(kinds.DATA_X_TENSOR, partial(_tensor_parallel, ctx, replicas=replicas), replicas=replicas)
        yield _pipeline(kinds.DATA_X_PIPELINE, ctx, replicas)


def _pipeline(kind: kinds.Strategy, ctx: RankContext, replicas: int = 1) -> StrategyBuilder:
    assert kind.schedule, "a pipeline's"
    build = partial(pipelines.pipeline, kind.schedule, ctx, replicas=replicas)
    return StrategyBuilder(kind, build, replicas=replicas, suits=partial(pipelines.suits, kind.schedule, replicas))


def _ddp(ctx: RankContext, references: References, at: Setting) -> Subject:
    model = at.workload.network(ctx.device)
    values = trainable(model)
    counts: dict[str, float] = {"optimizer bytes": at.workload.optimizer_settings.state_bytes(values)}
    if not _sends_rows(model):
        # Those that look for unused parameters also agree on which: a 32-bit number for each.
        found = 4 * len(values) if at.workload.may_be_unused else 0
        counts["all-reduced bytes"] = sum(value.nbytes for value in values) + found
    wrapped = wrap(model, ctx, find_unused_parameters=at.workload.may_be_unused)
    return _data_parallel(ctx, references, at, model, wrapped, counts, agreeing=lambda: values)


def _sends_rows(model: nn.Module) -> bool:
    """Whether a gradient is sparse, of the rows of an embedding that a batch looks up: how many is not known before."""
    return any(getattr(module, "sparse", False) for module in model.modules())


def _exchange(ctx: RankContext, _references: References, at: Setting) -> Subject:
    parameters = trainable(at.workload.network(HOST, on_meta=True))
    return collectives.gradients_alone(ctx, at.workload.name, parameters, bucket_bytes=BUCKET_BYTES)


def _zero_1(ctx: RankContext, references: References, at: Setting) -> Subject:
    """DDP, whose ranks keep the optimiser's states of some parameters each, and send those once they are updated."""
    model, optimizer = at.workload.network(ctx.device), at.workload.optimizer_settings
    values = trainable(model)
    if not optimizer.state_bytes(values):
        raise CannotBe("its optimiser keeps nothing from step to step, so there is nothing to divide")
    try:
        made, mine = sharded.zero_1(optimizer, values, ctx.rank, ctx.world_size)
    except ValueError as error:
        raise CannotBe(str(error)) from error
    size = sum(value.nbytes for value in values)
    counts: dict[str, float] = {} if at.workload.may_be_unused else {"all-reduced bytes": size}
    counts |= {"optimizer bytes": optimizer.state_bytes(mine)}
    if next(model.buffers(), None) is None:  # which DDP sends before a forward
        counts["collective bytes"] = 2 * size
    # Before its second step DDP agrees on its buckets, which are bytes as well.
    more = {"made": made, "agreeing": lambda: values, "settling": 1}
    wrapped = wrap(model, ctx, find_unused_parameters=at.workload.may_be_unused)
    return _data_parallel(ctx, references, at, model, wrapped, counts, **more)


def _alone(ctx: RankContext, references: References, at: Setting) -> Subject:
    """Every rank trains a model of its own on its share of the batch, and all of them at the same time."""
    mine = at.workload.of_rank(ctx.rank, ctx.world_size)
    model, batches = mine.network(ctx.device), mine.batches(ctx.device)
    counts = references.counts(at.workload, at.workload.micro_batch_sizes(mine.batch_size))
    counts["optimizer bytes"] = mine.optimizer_settings.state_bytes(trainable(model))
    return _subject(ctx, references, replace(at, workload=mine), at.shares()[:1], model, model, batches, counts)


def _fsdp(kind: kinds.Strategy, ctx: RankContext, references: References, at: Setting, *, replicas: int = 1) -> Subject:
    """Block by block, where the model has blocks; with replicas, gradients are all-reduced between them as well.

    FSDP2 sets the precision itself, and takes no parameters that lie channels last: each convolution then lays its own.
    Of a model on the meta device no rank ever holds more than one module's whole parameters before it is trained.
    """
    workload, on_host = at.workload, kind is kinds.FSDP_OFFLOAD
    if on_host and ctx.device.type == "cpu":
        raise CannotBe(ON_HOST)
    recipe = replace(workload.recipe, precision="float32", channels_last=False)
    model = replace(workload, recipe=recipe).network(HOST, on_meta=True)
    if workload.may_be_unused:
        raise CannotBe(UNUSED)
    if _sends_rows(model):
        raise CannotBe(SPARSE)
    without_data = is_on_meta(model)
    if workload.recipe.channels_last:
        sharded.lay_channels_last(model)
    blocks = _units(workload, model)
    once = cut_model.calls_each_once(replace(workload.as_reference, batch_size=1))
    ranks = ctx.world_size // replicas
    gathered = sharded.gathered_bytes(model.parameters(), ranks)  # also what is not trained
    if workload.in_bf16:
        gathered -= sharded.gathered_bytes(sharded.bf16_parameters(model), ranks) // 2
    reduced = sharded.gathered_bytes(trainable(model), ranks)
    own = sharded.local_shards(trainable(model), ctx.rank % ranks, ranks)
    times = kind.times(kinds.Collective.ALL_GATHER)
    freed = times > 1  # after the forward
    among = mesh(ctx, replicas)
    module = sharded.sharded(model, blocks, among, parameters=freed, bf16=workload.in_bf16, on_host=on_host)
    if without_data:
        rank = ctx.rank % ranks
        sharded.materialise(model, workload.initialise, ctx.device, rank=rank, ranks=ranks, on_host=on_host)
    counts: dict[str, float] = {"optimizer bytes": workload.optimizer_settings.state_bytes(own)}
    counts["sharded units"] = len({*blocks, model})
    if replicas == 1 and once:
        counts["collective bytes"] = len(workload.micro_batch_sizes(at.shares()[0])) * times * gathered + reduced
    more = {"after": partial(_shards_on_device, model)} if on_host else {}
    return _data_parallel(ctx, references, at, model, module, counts, **more)


def _one_unit(at: Setting) -> str:
    """A warning, if the model is gathered nearly whole: it then needs the memory of one that is not sharded."""
    model = at.workload.as_reference.network(HOST, on_meta=True)
    sizes = [sum(map(Tensor.numel, unit.parameters())) for unit in _units(at.workload, model)]
    whole = sum(map(Tensor.numel, model.parameters()))
    return ONE_UNIT if max([*sizes, whole - sum(sizes)]) > MOST_IN_ONE * whole else ""


def _units(workload: Workload, model: nn.Module) -> list[nn.Module]:
    """What is gathered by itself; the rest is gathered with the model."""
    return [block for block in workload.wrappable_blocks(model) if not sharded.is_tied(block, model)]


def _shards_on_device(model: nn.Module) -> Iterator[Check]:
    """Of an offloaded model: none may be there."""
    found = sum(here.nbytes for here in map(local, trainable(model)) if here.device.type != "cpu")
    yield Check(name="bytes of shards on the device", dtype="float32", difference=float(found), tolerance=0.0)


def _data_parallel(
    ctx: RankContext,
    references: References,
    at: Setting,
    model: nn.Module,
    wrapped: nn.Module,
    counts: Mapping[str, float],
    **more: Any,
) -> Subject:
    """Every rank trains on its equal share of the batch; batch normalisation sees that share."""
    batches = at.workload.shared(ctx.device, ctx.rank, ctx.world_size)
    pieces = at.workload.micro_batch_sizes(at.shares()[0])
    counted = {} if at.workload.exact else {**references.counts(at.workload, pieces), **counts}
    return _subject(ctx, references, at, at.shares(), model, wrapped, batches, counted, **more)


def _tensor_parallel(ctx: RankContext, references: References, at: Setting, *, replicas: int = 1) -> Subject:
    """All ranks of a replica compute on its whole share of the batch; replicas are averaged by FSDP2.

    Operations on what is divided are seen as those of the whole, others as this rank's, so they are not compared.
    """
    workload = at.workload
    if not hasattr(workload.module, "tensor_plan"):
        raise CannotBe("the workload has no tensor_plan(model)")
    ranks, in_autocast = mesh(ctx, replicas), replicas == 1  # FSDP2 has its own way to bfloat16
    model = (workload if in_autocast else workload.with_precision("float32")).network(HOST)
    inner = ranks["shard"] if replicas > 1 else ranks
    module = sharded.divided(model, workload.module.tensor_plan(model), inner).to(ctx.device)
    if replicas > 1:
        module = sharded.sharded(module, [], ranks["replica"], parameters=True, bf16=workload.in_bf16)
    batches = workload.shared(ctx.device, ctx.rank // (ctx.world_size // replicas), replicas)
    sizes = (workload.batch_size // replicas,) * replicas
    left = {} if workload.exact else references.counts(workload, workload.micro_batch_sizes(sizes[0]))
    counts = {name: each for name, each in left.items() if not each}  # nothing in float32 is so on every rank
    return _subject(ctx, references, at, sizes, model, module, batches, counts)


def _subject(
    ctx: RankContext,
    references: References,
    at: Setting,
    sizes: tuple[int, ...],
    model: nn.Module,
    wrapped: nn.Module,
    batches: Sequence[tuple[Tree, Tree]],
    counts: Mapping[str, float],
    made: ZeroRedundancyOptimizer | None = None,
    **more: Any,
) -> Subject:
    """A step of the wrapped model over this rank's batches in turn; each device or replica has one of these `sizes`.

    By its recipe's optimiser, or one that was `made` of it, whose ranks update parameters that differ.
    """
    workload, state = at.workload, partial(state_of, model)
    step = Step.of(workload, wrapped, batches[0], made)
    several = BatchCycle(step.on, batches)
    updates = {} if made else workload.optimizer_settings.updates(trainable(model))
    return trained(
        at,
        several,
        state,
        references.at(
            replace(workload, shares=len(sizes)) if workload.varies else workload, workload.micro_batch_sizes(*sizes)
        ),
        references=references,
        modules=[wrapped],
        devices=[ctx],
        counts={**updates, "forwards": len(workload.micro_batch_sizes(sizes[0])), **counts},
        optimizers=[made.optim if made else step.optimizer],
        compared=lambda: sharded.whole(state()),
        **several.cycle,
        **more,
    )
