"""How well does DistributedDataParallel scale, how much communication does it hide, and which options pay?

One process per device. Strong scaling keeps the batch of all ranks fixed, weak scaling the batch of each. At the
largest number of ranks every option is timed beside the default. The share of communication hidden behind backward is
1 - (step - step without synchronising) / all-reduce alone, all measured in the same rounds.

The answer would be wrong if the ranks computed something else (every option is compared with a plain loop over all
ranks' batches, in float64 with batch normalisation in eval mode and as timed; what communicates nothing, with a loop
over its own batch), if they sent less than they must (the bytes are counted), or if a rank's waiting were not counted
(a sample is the slowest rank's).
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import torch
from annotated_types import Len
from torch import Tensor

from scalecard import progress
from scalecard.distributed import nodes
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch_and_record
from scalecard.distributed.layout import layouts
from scalecard.hardware.machine import Machine
from scalecard.measuring.counting import flops
from scalecard.measuring.epochs import time_epochs
from scalecard.measuring.out_of_memory import guarded
from scalecard.measuring.proof import Change, Trained, compressed, expected, same_values
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.spec import Common, EachOnce, Positive, Rate, Sweep
from scalecard.measuring.subjects import training
from scalecard.measuring.variant import Subject, Variant
from scalecard.records.record import Case, Check, Record
from scalecard.training import classifiers, datasets, reference
from scalecard.training.ddp import LR, AllReduceAlone, Stepper, num_buckets, shard, wrap
from scalecard.training.trainer import Trainer

Model = Literal["lenet", "resnet18"]
HOOK_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
CHECK_BATCH = 3  # per rank


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    nodes: Positive
    models: Annotated[tuple[Model, ...], Len(min_length=1), EachOnce]
    batch_size: Positive
    buckets_mib: Annotated[tuple[Positive | None, ...], Len(min_length=1), EachOnce]
    hooks: Annotated[tuple[Literal["fp16", "bf16"], ...], EachOnce]
    accumulation: Sweep
    accuracy_models: Annotated[tuple[Model, ...], EachOnce]
    accuracy_batch_size: Positive
    lr: Rate
    epochs: Positive
    train_images: Positive | None
    test_images: Positive | None
    check_steps: Positive


@dataclass(frozen=True)
class Option:
    """One way to take a step: `count` batches, or wrapped by DDP with a bucket size, a hook or another option."""

    name: str
    count: int = 1
    bucket_mib: int | None = None
    hook: str | None = None
    wrapped: bool = True
    synchronised: bool = True
    switch: str | None = None


@dataclass(frozen=True)
class Setting:
    """Where a step or an epoch is built: samples per rank and step, for an epoch the images, and the precision."""

    batch_size: int
    num_images: int | None = None
    exact: bool = False

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64 if self.exact else torch.float32


class Plainly:
    """What the plain loop does for one model, computed once for all options."""

    def __init__(self, ctx: RankContext, spec: Spec, model: str, train: datasets.Split) -> None:
        self.ctx, self.spec, self.model, self.train = ctx, spec, model, train
        self.expected = functools.cache(self._expected)

    def _expected(
        self, at: Setting, ranks: tuple[int, ...], count: int, times: int, hook: str | None
    ) -> Trained | Change:
        """After these ranks' batches `count` times per step; with a hook, its rounding of gradients is allowed too."""
        spec, device = self.spec, self.ctx.device
        parts = [reference.Part(1 / len(ranks), *shard(self.train, at.batch_size, rank, at.dtype)) for rank in ranks]
        plainly = partial(
            classifiers.plain, self.model, [parts * count] * times, seed=spec.seed, device=device, lr=LR, exact=at.exact
        )
        if not hook:
            return expected(self.model, lambda exactly: plainly(exactly=exactly), exact=at.exact)
        network = classifiers.network(self.model, seed=spec.seed, device=device, exact=at.exact)
        shares = [reference.gradient(network, [part], reference.cross_entropy) for part in parts]
        return compressed(self.model, plainly(), plainly(exactly=True), shares, HOOK_DTYPES[hook])


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Scaling over 1..N ranks and over nodes; the options at the largest number of ranks of each; accuracy."""
    with nodes.first_node_first("images"):
        dataset = datasets.load(spec.dataset, Path(spec.data_dir)).limited(spec.train_images, spec.test_images)
    wanted = layouts(machine.num_devices, spec.nodes)
    for layout in progress.cases(wanted, label=lambda layout: f"DDP on {layout}"):
        cases: list[Case] = [{"model": model, **layout.case} for model in spec.models]
        work = (_rank, spec, machine, dataset)
        yield from launch_and_record(*work, layout=layout, machine=machine, cases=cases, metric="step_time")
    if machine.num_devices == 1:
        yield Record.skipped({"devices": 2}, "needs 2 devices, this machine has 1", metric="step_time")


def _rank(ctx: RankContext, spec: Spec, machine: Machine, shared: datasets.Dataset) -> list[Record]:
    dataset, records = shared.to(ctx.device), list[Record]()
    for model in spec.models:
        case: Case = {"model": model, **ctx.layout.case}
        plainly = Plainly(ctx, spec, model, dataset.train)
        records += guarded(_scaling(ctx, spec, model, plainly), case, metric="step_time")
        if ctx.world_size == machine.num_devices * ctx.layout.nodes > 1:
            records += guarded(_options(ctx, spec, model, plainly), case, metric="step_time")
    for model in spec.accuracy_models:
        case = {"model": model, **ctx.layout.case}
        records += guarded(_accuracy(ctx, spec, model, dataset), case, metric="epoch_time")
    return records


def _scaling(ctx: RankContext, spec: Spec, model: str, plainly: Plainly) -> Iterator[Record]:
    """The whole batch shared (strong), and a whole batch on every rank (weak); one rank also without DDP."""
    sizes = {"strong": max(1, spec.batch_size // ctx.world_size)}
    sizes["weak" if ctx.world_size > 1 else "plain"] = spec.batch_size
    variants = []
    for name, size in sizes.items():
        case: Case = {"model": model, **ctx.layout.case, "scaling": name, "batch_size": size * ctx.world_size}
        option = Option(name, wrapped=name != "plain")
        variants.append(_variant(ctx, spec, plainly, option, case, size))
    progress.doing(f"{model}: scaling on {ctx.layout}")
    for timing in time_rounds(variants, devices=[ctx], rule=spec.measure, ranks=ctx):
        yield timing.record("step_time")


def _options(ctx: RankContext, spec: Spec, model: str, plainly: Plainly) -> Iterator[Record]:
    """Every option beside the default, strong scaling, in the same rounds."""
    share = max(1, spec.batch_size // ctx.world_size)
    options = [Option("default"), Option("no_sync", synchronised=False)]
    options += [Option(f"bucket {cap} MiB", bucket_mib=cap) for cap in spec.buckets_mib if cap is not None]
    options += [Option(switch, switch=switch) for switch in ("gradient_as_bucket_view", "static_graph")]
    options += [Option(f"{hook} hook", hook=hook) for hook in spec.hooks]
    options += [Option(f"accumulate {count}", count=count) for count in spec.accumulation if count > 1]
    variants = []
    for option in options:
        case: Case = {"model": model, **ctx.layout.case, "option": option.name, "batch_size": share * ctx.world_size}
        variants.append(_variant(ctx, spec, plainly, option, {**case, "steps": option.count}, share))
    case = {"model": model, **ctx.layout.case, "option": "all-reduce alone", "batch_size": share * ctx.world_size}
    build = partial(_communication, ctx, spec, model)
    variants.insert(2, Variant(name="all-reduce alone", case={**case, "steps": 1}, build=build))
    progress.doing(f"{model}: {len(variants)} options on {ctx.layout}")
    for timing in time_rounds(variants, devices=[ctx], rule=spec.measure, ranks=ctx):
        yield timing.record("step_time")


def _variant(ctx: RankContext, spec: Spec, plainly: Plainly, option: Option, case: Case, batch_size: int) -> Variant:
    build = partial(_step, ctx, spec, plainly, option)
    small = Setting(CHECK_BATCH, exact=True)
    return Variant(name=option.name, case=case, build=build, proven_at=[small], timed_at=Setting(batch_size))


def _step(ctx: RankContext, spec: Spec, plainly: Plainly, option: Option, at: Setting) -> Subject:
    """Every rank's own batch. Without synchronisation, the rank must do what a loop over its own batch does."""
    model, train = plainly.model, plainly.train
    module = classifiers.network(model, seed=spec.seed, device=ctx.device, exact=at.exact)
    options = {} if option.bucket_mib is None else {"bucket_cap_mb": option.bucket_mib}
    options |= {option.switch: True} if option.switch else {}
    stepper = Stepper(
        wrap(module, ctx, hook=option.hook, **options) if option.wrapped else module,
        shard(train, at.batch_size, ctx.rank, at.dtype),
    )
    work = partial(stepper.accumulated_step, option.count) if option.synchronised else stepper.step_without_sync
    times = spec.check_steps if at.exact and not option.hook else 1
    ranks = tuple(range(ctx.world_size)) if option.synchronised and option.wrapped else (ctx.rank,)
    what = f"parameters after {times} steps, batch norm in eval mode" if at.exact else "change in one step"
    values = sum(p.numel() for p in module.parameters())
    sends = option.wrapped and option.synchronised
    buckets = {"all-reduces": num_buckets(module.parameters(), option.bucket_mib) if sends else 0}
    if option.switch == "static_graph":  # DDP forms its buckets a step later than the one that is counted
        buckets = {}
    _, flop = map(flops, classifiers.without_data(model))
    return training(
        f"{model}, {option.name}: {what}, {len(ranks)} ranks' batches",
        work,
        lambda: [*module.parameters(), *module.buffers()],
        partial(plainly.expected, at, ranks, option.count, times, option.hook),
        times=times,
        devices=[ctx],
        counts={
            "FLOPs": option.count * at.batch_size * flop,
            "updates": 1,
            "forwards": option.count,
            "samples": option.count * at.batch_size,
            **buckets,
            "all-reduced bytes": values * (2 if option.hook else at.dtype.itemsize) if sends else 0,
        },
        modules=[module],
        agreeing=lambda: module.parameters() if sends else (),
    )


def _communication(ctx: RankContext, spec: Spec, model: str, _at: None) -> Subject:
    """The gradients' bytes alone; zeros stay finite however often they are added."""
    module = classifiers.network(model, seed=spec.seed, device=ctx.device, exact=False)
    alone = AllReduceAlone(module, ctx.device)

    def prove() -> Iterator[Check]:
        values = [torch.arange(len(alone.flat), dtype=torch.float32) % 251 + rank for rank in range(ctx.world_size)]
        alone.flat.copy_(values[ctx.rank])
        alone.reduce()
        ctx.synchronize()
        yield same_values(f"{model}, all-reduce alone: sum, element by element", alone.flat, torch.stack(values).sum(0))

    def state() -> list[Tensor]:
        return [alone.flat]

    counts = {"all-reduces": len(alone.buckets), "all-reduced bytes": sum(p.nbytes for p in module.parameters())}
    return Subject(work=alone.reduce, prove=prove, expected=counts, state=state, agreeing=state)


def _accuracy(ctx: RankContext, spec: Spec, model: str, dataset: datasets.Dataset) -> Iterator[Record]:
    """Test accuracy after every epoch, and the seconds that each epoch took."""
    case: Case = {"model": model, **ctx.layout.case, "data": dataset.name}
    case |= {"batch_size": spec.accuracy_batch_size, "lr": spec.lr}
    batch, ranks = CHECK_BATCH * ctx.world_size, ctx.world_size
    small = [Setting(batch, batch * spec.check_steps - ranks, exact=True), Setting(batch, batch)]
    variant = Variant(
        name=f"{model} on {ctx.layout}",
        case=case,
        build=partial(_epoch, ctx, spec, model, dataset),
        proven_at=small,
        timed_at=Setting(spec.accuracy_batch_size),
    )
    (timing,) = time_epochs([variant], num_epochs=spec.epochs, devices=[ctx], ranks=ctx)
    yield timing.record("epoch_time")
    yield timing.accuracy_record()


def _epoch(ctx: RankContext, spec: Spec, model: str, dataset: datasets.Dataset, at: Setting) -> Subject:
    """An epoch over the images; batches are those of all ranks together."""
    images, ranks = dataset.limited(at.num_images, None), ctx.world_size
    module = classifiers.network(model, seed=spec.seed, device=ctx.device, exact=at.exact)
    trainer = Trainer(wrap(module, ctx), images, at.batch_size, spec.lr, spec.seed, ctx.rank, ranks, frozen=at.exact)
    steps = trainer.steps()
    split = partial(reference.epoch, images.train.images, images.train.labels, batch_size=at.batch_size)
    plainly = partial(classifiers.plain, model, seed=spec.seed, device=ctx.device, lr=spec.lr, exact=at.exact)

    def wanted() -> Trained | Change:
        batches = split(seed=spec.seed, dtype=at.dtype, shares=ranks)
        return expected(model, lambda exactly: plainly(batches, exactly=exactly), exact=at.exact)

    forward, whole = map(flops, classifiers.without_data(model))
    seen = _samples(len(images.train), at.batch_size, ranks) // ranks
    what = f"parameters after {steps} steps, batch norm in eval mode" if at.exact else f"change in {steps} steps"
    return training(
        f"{model}: {what} of an epoch, {ranks} ranks",
        trainer.epoch,
        lambda: [*module.parameters(), *module.buffers()],
        wanted,
        times=1 if at.num_images else 0,
        devices=[ctx],
        counts={
            "FLOPs": seen * whole,
            "updates": steps,
            "samples": seen,
            "all-reduced bytes": steps * sum(p.nbytes for p in module.parameters()),
            "test FLOPs": len(images.test) * forward,
        },
        modules=[module],
        order=trainer.order,
        test=trainer.accuracy,
        agreeing=module.parameters,
    )


def _samples(num_images: int, batch_size: int, ranks: int) -> int:
    """Images in the batches that the ranks can share out equally."""
    whole, rest = divmod(num_images, batch_size)
    return whole * batch_size * (batch_size % ranks == 0) + rest * (rest % ranks == 0)
