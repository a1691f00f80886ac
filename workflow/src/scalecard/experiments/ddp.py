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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import torch
from annotated_types import Len
from torch import Tensor

from scalecard import progress
from scalecard.benchmarks.training import gradient_allreduce
from scalecard.distributed import Layout, layouts, nodes
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch_and_record
from scalecard.hardware.machine import Machine
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.counting import flops
from scalecard.measuring.interleaved_timing import epoch_records, time_rounds
from scalecard.measuring.more_ranks import Proofs, proven_on_more_ranks, with_proofs
from scalecard.measuring.prepare import guarded, proofs
from scalecard.measuring.proof import Change, Precision, Trained, compressed, expected, training
from scalecard.measuring.spec import Common, EachOnce, Positive, Rate, Sweep
from scalecard.measuring.stopping_rule import coarse_to_fine, in_equal_parts
from scalecard.measuring.timer import Bench
from scalecard.parallel.ddp import LR, Option, Stepper, every_option, num_buckets, wrap
from scalecard.parallel.trainer import Trainer
from scalecard.records.axes import Case
from scalecard.records.record import Record
from scalecard.workloads import datasets, reference
from scalecard.workloads.workload import built_in

Model = Literal["lenet", "resnet18", "resnet18_quarter"]
HOOK_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
CHECK_BATCH = 2  # per rank


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
class Setting(Precision):
    """Where a step or an epoch is built: samples per rank and step, for an epoch the images, and the precision."""

    batch_size: int
    num_images: int | None = None


@dataclass(frozen=True)
class Turn:
    """What a launch of ranks measures in rounds of its own."""

    model: Model
    layout: Layout
    part: Literal["scaling", "options", "accuracy"]

    @property
    def case(self) -> Case:
        """Of a record that says why there is no other."""
        first: dict[str, Case] = {"scaling": {"scaling": "strong"}, "options": {"option": "default"}}
        return {"workload": self.model, **self.layout.case, **first.get(self.part, {})}

    @property
    def metric(self) -> str:
        return "epoch_time" if self.part == "accuracy" else "step_time"

    def __str__(self) -> str:
        return f"{self.model}: {self.part} on {self.layout}"


class DdpReferences:
    """What the plain loop does for one model, computed once for all options."""

    def __init__(self, ctx: RankContext, spec: Spec, model: str, train: datasets.Split) -> None:
        self.ctx, self.spec, self.model, self.train = ctx, spec, model, train
        _, image = built_in(model, seed=spec.seed).without_data()
        self.flops = flops(image)  # of training on one
        self.expected, self.shares = functools.cache(self._expected), functools.cache(self._shares)
        self.builder = functools.cache(lambda option: partial(_step, self, option))

    def _expected(self, at: Setting, ranks: tuple[int, ...], count: int, times: int) -> Trained | Change:
        """After steps over these ranks' batches, each of which counts `count` times: as timed, so does the one step."""
        if count > 1 and not at.exact:
            once = self.expected(at, ranks, 1, times)
            assert isinstance(once, Change), "a step is checked as timed"
            return replace(once, step=[count * part for part in once.step])
        workload = built_in(self.model, seed=self.spec.seed, lr=LR, exact=at.exact)
        steps = [self._parts(at, ranks, count)] * times
        return expected(self.model, partial(workload.trained, steps, self.ctx.device), exact=at.exact)

    def compressed(self, at: Setting, ranks: tuple[int, ...], hook: str) -> Change:
        """The same after one step as timed, whose tolerance allows for the hook's rounding of gradients."""
        step = self.expected(at, ranks, 1, 1)
        assert isinstance(step, Change), "a hook is checked as timed"
        return compressed(self.model, step, self.shares(at, ranks), HOOK_DTYPES[hook])

    def _shares(self, at: Setting, ranks: tuple[int, ...]) -> list[list[Tensor]]:
        """What each of these ranks adds to the gradient."""
        network = built_in(self.model, seed=self.spec.seed).network(self.ctx.device)
        return [reference.gradient(network, [part], reference.cross_entropy) for part in self._parts(at, ranks, 1)]

    def _parts(self, at: Setting, ranks: tuple[int, ...], count: int) -> list[reference.Part]:
        shards = [datasets.shard(self.train, at.batch_size, rank, at.dtype) for rank in ranks]
        return [reference.Part(count / len(ranks), *shard) for shard in shards]


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Scaling and accuracy over 1..N ranks and over nodes, and the options at the largest number of ranks of each.

    The headline is one rank and all of them.
    """
    with nodes.first_node_first("images"):
        dataset = datasets.load(spec.dataset, Path(spec.data_dir), spec.train_images, spec.test_images)
    wanted = layouts(machine.num_devices, spec.nodes)
    proven = proven_on_more_ranks(_prove, spec, dataset, timed=wanted, machine=machine)
    for layout in in_equal_parts(coarse_to_fine(wanted), label=lambda layout: f"DDP on {layout}", headline=2):
        turns = _turns(spec, machine, layout)
        yield from launch_and_record(
            *(_rank, spec, turns, dataset, proven),
            layout=layout,
            machine=machine,
            cases=[(turn.case, turn.metric) for turn in turns],
        )
    if machine.num_devices == 1:
        yield Record.skipped({"devices": 2}, "needs 2 devices, this machine has 1", metric="step_time")


def _prove(ctx: RankContext, spec: Spec, dataset: datasets.Dataset) -> Proofs:
    """What is proven on more ranks than are timed: every option and an epoch, with the smaller model."""
    references = DdpReferences(ctx, spec, "lenet", dataset.train)
    options = every_option(spec.buckets_mib, spec.hooks, spec.accumulation)
    steps = [_variant(references, option, {}, CHECK_BATCH) for option in options]
    steps += [_variant(references, Option("default"), {}, CHECK_BATCH, name=name) for name in ("strong", "weak")]
    steps.append(_all_reduce_alone(ctx, spec, "lenet", {}))
    steps = [replace(variant, proven_at=variant.proven_at or [variant.timed_at]) for variant in steps]
    return proofs([*steps, _epochs(ctx, spec, "lenet", dataset)], Bench([ctx], ctx))


def _turns(spec: Spec, machine: Machine, layout: Layout) -> list[Turn]:
    """The scaling and accuracy of every model before any one's options, which are for as many ranks as there are."""
    turns = [Turn(model, layout, "scaling") for model in spec.models]
    turns += [Turn(model, layout, "accuracy") for model in spec.accuracy_models]
    if layout.ranks == machine.num_devices * layout.nodes > 1:
        turns += [Turn(model, layout, "options") for model in spec.models]
    return turns


def _rank(
    ctx: RankContext, spec: Spec, turns: Sequence[Turn], shared: datasets.Dataset, proven: Proofs
) -> Iterator[Record]:
    dataset = shared.to(ctx.device)
    references = {model: DdpReferences(ctx, spec, model, dataset.train) for model in spec.models}
    for turn in in_equal_parts(turns, label=str, headline=sum(turn.part != "options" for turn in turns)):
        if turn.part == "accuracy":
            found = _accuracy(ctx, spec, turn.model, dataset, proven)
        else:
            variants_of = _scaling if turn.part == "scaling" else _options
            found = _timed(ctx, spec, with_proofs(variants_of(references[turn.model], turn.case), proven))
        yield from guarded(found, turn.case, metric=turn.metric)


def _timed(ctx: RankContext, spec: Spec, variants: list[Variant]) -> Iterator[Record]:
    for timing in time_rounds(variants, devices=[ctx], rule=spec.measure, ranks=ctx, energy=True):
        yield timing.record("step_time")


def _scaling(references: DdpReferences, case: Case) -> list[Variant]:
    """The whole batch shared (strong), and a whole batch on every rank (weak); one rank also without DDP."""
    ctx, spec, variants = references.ctx, references.spec, []
    sizes = {"strong": max(1, spec.batch_size // ctx.world_size)}
    sizes["weak" if ctx.world_size > 1 else "plain"] = spec.batch_size
    for name, size in sizes.items():
        option = Option("default") if name != "plain" else Option("plain", wrapped=False)
        own: Case = {**case, "scaling": name, "batch_size": size * ctx.world_size}
        variants.append(_variant(references, option, own, size, name=name))
    return variants


def _options(references: DdpReferences, case: Case) -> list[Variant]:
    """Every option beside the default, strong scaling, in the same rounds."""
    ctx, spec, variants = references.ctx, references.spec, []
    share = max(1, spec.batch_size // ctx.world_size)
    whole = share * ctx.world_size
    for option in every_option(spec.buckets_mib, spec.hooks, spec.accumulation):
        own: Case = {**case, "option": option.name, "batch_size": whole, "steps": option.count}
        variants.append(_variant(references, option, own, share))
    own = {**case, "option": "all-reduce alone", "batch_size": whole, "steps": 1}
    variants.insert(2, _all_reduce_alone(ctx, spec, references.model, own))
    return variants


def _variant(references: DdpReferences, option: Option, case: Case, batch_size: int, *, name: str = "") -> Variant:
    small = [] if option.hook else [Setting(CHECK_BATCH, exact=True)]  # a hook rounds whatever the precision
    build, at = references.builder(option), Setting(batch_size)
    return Variant(name=name or option.name, case=case, build=build, proven_at=small, timed_at=at)


def _step(references: DdpReferences, option: Option, at: Setting) -> Subject:
    """Every rank's own batch. Without synchronisation, the rank must do what a loop over its own batch does."""
    ctx, spec, model = references.ctx, references.spec, references.model
    module = built_in(model, seed=spec.seed, exact=at.exact).network(ctx.device)
    stepper = Stepper(module, ctx, option, datasets.shard(references.train, at.batch_size, ctx.rank, at.dtype))
    times = spec.check_steps if at.exact else 1
    ranks = tuple(range(ctx.world_size)) if option.sends else (ctx.rank,)
    values = sum(p.numel() for p in module.parameters())
    return training(
        f"{model}, {option.name}, batches of {progress.counted(len(ranks), 'rank')}",
        stepper.step,
        lambda: [*module.parameters(), *module.buffers()],
        partial(references.compressed, at, ranks, option.hook)
        if option.hook
        else partial(references.expected, at, ranks, option.count, times),
        times=times,
        steps=times,
        devices=[ctx],
        counts={
            "FLOPs": option.count * at.batch_size * references.flops,
            "updates": 1,
            "forwards": option.count,
            "samples": option.count * at.batch_size,
            "all-reduces": num_buckets(module.parameters(), option.bucket_mib) if option.sends else 0,
            "all-reduced bytes": values * (2 if option.hook else at.dtype.itemsize) if option.sends else 0,
        },
        module=module,
        settling=option.switch == "static_graph",  # whose buckets DDP forms a step later
        agreeing=lambda: module.parameters() if option.sends else (),
    )


def _all_reduce_alone(ctx: RankContext, spec: Spec, model: str, case: Case) -> Variant:
    workload, name = built_in(model, seed=spec.seed), "all-reduce alone"
    return Variant(name=name, case=case, build=partial(gradient_allreduce.alone, ctx), timed_at=workload)


def _accuracy(ctx: RankContext, spec: Spec, model: str, dataset: datasets.Dataset, proven: Proofs) -> Iterator[Record]:
    variants = with_proofs([_epochs(ctx, spec, model, dataset)], proven)
    yield from epoch_records(variants, num_epochs=spec.epochs, devices=[ctx], ranks=ctx)


def _epochs(ctx: RankContext, spec: Spec, model: str, dataset: datasets.Dataset) -> Variant:
    ranks = ctx.world_size
    whole = max(1, spec.accuracy_batch_size // ranks) * ranks  # ranks leave out a batch that they cannot share equally
    case: Case = {"workload": model, **ctx.layout.case, "data": dataset.name, "batch_size": whole, "lr": spec.lr}
    batch = CHECK_BATCH * ranks
    small = [Setting(batch, batch * spec.check_steps - ranks, exact=True), Setting(batch, batch)]
    build = partial(_epoch, ctx, spec, model, dataset)
    return Variant(name=model, case=case, build=build, proven_at=small, timed_at=Setting(whole))


def _epoch(ctx: RankContext, spec: Spec, model: str, dataset: datasets.Dataset, at: Setting) -> Subject:
    """An epoch over the images; batches are those of all ranks together."""
    images, ranks = dataset.limited(at.num_images, None), ctx.world_size
    workload = built_in(model, seed=spec.seed, lr=spec.lr, exact=at.exact)
    module = workload.network(ctx.device)
    trainer = Trainer(wrap(module, ctx), images, at.batch_size, spec.lr, spec.seed, ctx.rank, ranks, frozen=at.exact)
    batches = reference.batches(len(images.train), at.batch_size, ranks)
    split = partial(reference.epoch, images.train.images, images.train.labels, batch_size=at.batch_size)

    def wanted() -> Trained | Change:
        steps = split(seed=spec.seed, dtype=at.dtype, shares=ranks)
        return expected(model, partial(workload.trained, steps, ctx.device), exact=at.exact)

    forward, whole = map(flops, workload.without_data())
    seen, steps = sum(map(len, batches)) // ranks, len(batches)
    return training(
        f"{model}, an epoch on {progress.counted(ranks, 'rank')}",
        trainer.epoch,
        lambda: [*module.parameters(), *module.buffers()],
        wanted,
        times=1 if at.num_images else 0,
        steps=steps,
        devices=[ctx],
        counts={
            "FLOPs": seen * whole,
            "updates": steps,
            "samples": seen,
            "all-reduced bytes": steps * sum(p.nbytes for p in module.parameters()),
            "test FLOPs": len(images.test) * forward,
        },
        module=module,
        order=trainer.order,
        test=trainer.accuracy,
        agreeing=module.parameters,
    )
