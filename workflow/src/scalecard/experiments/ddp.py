"""How well does DistributedDataParallel scale, how much communication does it hide, and which options pay?

One process per device. Strong scaling keeps the batch of all ranks fixed, weak scaling the batch of each. At the
largest number of ranks every option is timed beside the default. The share of communication hidden behind backward is
1 - (step - step without synchronising) / all-reduce alone, all measured in the same rounds. DDP also takes turns with
what one process does with all devices of a node: data parallelism written by hand and, on GPUs, nn.DataParallel. The
first rank drives these while the others wait; on GPUs it then has memory on the others' devices, which are idle.

The answer would be wrong if the ranks computed something else (every option is compared with a plain loop over all
ranks' batches, in float64 with batch normalisation in eval mode and as timed; what communicates nothing, with a loop
over its own batch), if they sent less than they must (the bytes are counted), or if a rank's waiting were not counted
(a sample is the slowest rank's).
"""

import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from scalecard import progress
from scalecard.benchmarks.machine import collectives
from scalecard.benchmarks.training.epochs import Epoch, OfImages, epoch
from scalecard.benchmarks.training.one_process import ON_CPU, nn_data_parallel, written_by_hand
from scalecard.distributed import Layout, layouts, nodes
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch_and_record
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.counting import flops
from scalecard.measuring.interleaved_timing import epoch_records, round_records
from scalecard.measuring.more_ranks import Proofs, driven_by_the_first, proven_on_more_ranks, with_proofs
from scalecard.measuring.prepare import guarded, proofs, too_few_devices
from scalecard.measuring.proof import Change, Precision, Trained, compressed, expected, training
from scalecard.measuring.spec import Distinct, Positive, Rate, Several, Sweep
from scalecard.measuring.stopping_rule import coarse_to_fine, in_equal_parts
from scalecard.measuring.timer import Synchronised
from scalecard.parallel.ddp import BUCKET_BYTES, LR, Option, Stepper, every_option, num_buckets, wrap
from scalecard.parallel.trainer import Trainer
from scalecard.records.axes import Case
from scalecard.records.record import Record
from scalecard.records.strategies import BY_HAND, DATA_PARALLEL, DDP
from scalecard.workloads import datasets, reference
from scalecard.workloads.reference import trainable
from scalecard.workloads.workload import HOST, Workload, built_in

Model = Literal["lenet", "resnet18", "resnet18_quarter"]
HOOK_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
CHECK_BATCH = 2  # per rank


@dataclass(frozen=True, kw_only=True)
class Spec(OfImages):
    nodes: Positive
    models: Several[Model]
    batch_size: Positive
    buckets_mib: Several[Positive | None]
    hooks: Distinct[Literal["fp16", "bf16"]]
    accumulation: Sweep
    accuracy_models: Distinct[Model]
    accuracy_batch_size: Positive
    lr: Rate


@dataclass(frozen=True)
class Setting(Precision):
    """Where a step is built: samples per rank, and the precision."""

    batch_size: int


@dataclass(frozen=True)
class Turn:
    """What a launch of ranks measures in rounds of its own."""

    model: Model
    layout: Layout
    part: Literal["scaling", "accuracy", "one process", "options"]

    @property
    def case(self) -> Case:
        """Of a record that says why there is no other."""
        first: dict[str, Case] = {
            "scaling": {"scaling": "strong"},
            "one process": {"strategy": BY_HAND},
            "options": {"option": "default"},
        }
        return {"workload": self.model, **self.layout.case, **first.get(self.part, {})}

    @property
    def metric(self) -> str:
        return "epoch_time" if self.part == "accuracy" else "step_time"

    def __str__(self) -> str:
        return f"{self.model}: {self.part} on {self.layout}"


class Steps:
    """The steps of one model, and what the plain loop does for it, computed once for all options."""

    def __init__(self, ctx: RankContext, spec: Spec, model: str, train: datasets.Split) -> None:
        self.ctx, self.spec, self.model, self.train = ctx, spec, model, train
        _, image = built_in(model, seed=spec.seed).without_data()
        self.flops = flops(image)  # of training on one
        self.expected, self.shares = functools.cache(self._expected), functools.cache(self._shares)
        self.builder = functools.cache(lambda option: partial(self.subject, option))

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

    def scaling(self, case: Case) -> list[Variant]:
        """The whole batch shared (strong), and a whole batch on every rank (weak); one rank also without DDP."""
        sizes = {"strong": max(1, self.spec.batch_size // self.ctx.world_size)}
        sizes["weak" if self.ctx.world_size > 1 else "plain"] = self.spec.batch_size
        variants = []
        for name, size in sizes.items():
            option = Option("default") if name != "plain" else Option("plain", wrapped=False)
            own: Case = {**case, "scaling": name, "batch_size": size * self.ctx.world_size}
            variants.append(self.variant(option, own, size, name=name))
        return variants

    def beside_one_process(self, case: Case, devices: Sequence[Device]) -> list[Variant]:
        """DDP, and what the first rank alone does with all of these devices, strong scaling, in the same rounds."""
        share = max(1, self.spec.batch_size // self.ctx.world_size)
        case = {**case, "batch_size": share * self.ctx.world_size}
        variants = [self.variant(Option("default"), {**case, "strategy": DDP.name}, share, name=DDP.name)]
        for way in [BY_HAND] if self.ctx.device.type == "cpu" else [BY_HAND, DATA_PARALLEL.name]:
            build = driven_by_the_first(self.ctx, partial(self.in_one_process, way, devices))
            variants.append(replace(variants[0], name=way, case={**case, "strategy": way}, build=build))
        return variants

    def options(self, case: Case) -> list[Variant]:
        """Every option beside the default, strong scaling, in the same rounds."""
        share = max(1, self.spec.batch_size // self.ctx.world_size)
        case = {**case, "batch_size": share * self.ctx.world_size}
        variants = [
            self.variant(option, {**case, "option": option.name, "steps": option.count}, share)
            for option in every_option(self.spec.buckets_mib, self.spec.hooks, self.spec.accumulation)
        ]
        variants.insert(2, self.all_reduce_alone({**case, "option": "all-reduce alone", "steps": 1}))
        return variants

    def variant(self, option: Option, case: Case, batch_size: int, *, name: str = "") -> Variant:
        small = [] if option.hook else [Setting(CHECK_BATCH, exact=True)]  # a hook rounds whatever the precision
        build, at = self.builder(option), Setting(batch_size)
        return Variant(name=name or option.name, case=case, build=build, proven_at=small, timed_at=at)

    def all_reduce_alone(self, case: Case) -> Variant:
        def build(at: Workload) -> Subject:
            parameters = trainable(at.network(HOST, on_meta=True))
            return collectives.gradients_alone(self.ctx, at.name, parameters, bucket_bytes=BUCKET_BYTES)

        workload = built_in(self.model, seed=self.spec.seed)
        return Variant(name="all-reduce alone", case=case, build=build, timed_at=workload)

    def in_one_process(self, way: str, devices: Sequence[Device], at: Setting) -> Subject:
        """The batches of all ranks, each on a device or, for nn.DataParallel, all on the first one."""
        ranks, times = range(len(devices)), self.spec.check_steps if at.exact else 1
        workload = built_in(self.model, seed=self.spec.seed, lr=LR, exact=at.exact)
        shards = [datasets.shard(self.train, at.batch_size, rank, at.dtype) for rank in ranks]
        batch = (torch.cat([images for images, _ in shards]), torch.cat([labels for _, labels in shards]))
        wanted = partial(self.expected, at, tuple(ranks), 1, times)
        where = f"{self.model}, {way}, batches of {progress.counted(len(devices), 'device')}"
        if way == DATA_PARALLEL.name:
            return nn_data_parallel(where, workload, devices, batch, wanted, steps=times)
        shares = [at.batch_size] * len(devices)
        return written_by_hand(where, workload, devices, shares, batch, wanted, steps=times)

    def subject(self, option: Option, at: Setting) -> Subject:
        """Every rank's own batch. Without synchronisation, the rank must do what a loop over its own batch does."""
        ctx, spec, model = self.ctx, self.spec, self.model
        module = built_in(model, seed=spec.seed, exact=at.exact).network(ctx.device)
        stepper = Stepper(module, ctx, option, datasets.shard(self.train, at.batch_size, ctx.rank, at.dtype))
        times = spec.check_steps if at.exact else 1
        ranks = tuple(range(ctx.world_size)) if option.sends else (ctx.rank,)
        plain = partial(self.expected, at, ranks, option.count, times)
        parameters = trainable(built_in(model, seed=spec.seed, exact=at.exact).network(HOST, on_meta=True))
        values = sum(p.numel() for p in parameters)
        return training(
            f"{model}, {option.name}, batches of {progress.counted(len(ranks), 'rank')}",
            stepper.step,
            lambda: [*module.parameters(), *module.buffers()],
            partial(self.compressed, at, ranks, option.hook) if option.hook else plain,
            times=times,
            devices=[ctx],
            counts={
                "FLOPs": option.count * at.batch_size * self.flops,
                "updates": 1,
                "forwards": option.count,
                "samples": option.count * at.batch_size,
                "all-reduces": num_buckets(parameters, option.bucket_mib) if option.sends else 0,
                "all-reduced bytes": values * (2 if option.hook else at.dtype.itemsize) if option.sends else 0,
            },
            module=module,
            settling=option.switch == "static_graph",  # whose buckets DDP forms a step later
            agreeing=lambda: module.parameters() if option.sends else (),
        )


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Scaling and accuracy over 1..N ranks and over nodes, and the options at the largest number of ranks of each.

    The headline is one rank and all of them.
    """
    with nodes.first_node_first("images"):
        dataset = spec.images()
    wanted = layouts(machine.num_devices, spec.nodes)
    proven = proven_on_more_ranks(_prove, spec, machine, dataset, timed=wanted, machine=machine)
    for layout in in_equal_parts(coarse_to_fine(wanted), label=lambda layout: f"DDP on {layout}", headline=2):
        turns = _turns(spec, machine, layout)
        yield from launch_and_record(
            *(_rank, spec, machine, turns, dataset, proven),
            layout=layout,
            machine=machine,
            cases=[(turn.case, turn.metric) for turn in turns],
        )
    yield from too_few_devices({"devices": 2}, machine, metric="step_time")
    if machine.emulated and machine.num_devices > 1:
        case: Case = {"devices": machine.num_devices, "strategy": DATA_PARALLEL.name}
        yield Record.skipped(case, ON_CPU, metric="step_time")


def _prove(ctx: RankContext, spec: Spec, machine: Machine, dataset: datasets.Dataset) -> Proofs:
    """What is proven on more ranks than are timed: every option and an epoch, with the smaller model."""
    steps = Steps(ctx, spec, "lenet", dataset.train)
    options = every_option(spec.buckets_mib, spec.hooks, spec.accumulation)
    variants = [steps.variant(option, {}, CHECK_BATCH) for option in options]
    variants += [steps.variant(Option("default"), {}, CHECK_BATCH, name=name) for name in ("strong", "weak")]
    variants.append(steps.all_reduce_alone({}))
    with _all_devices(ctx, machine) as devices:
        variants += steps.beside_one_process({}, devices)
        variants = [replace(variant, proven_at=variant.proven_at or [variant.timed_at]) for variant in variants]
        return proofs([*variants, _epochs(ctx, spec, "lenet", dataset)], ctx)


def _all_devices(ctx: RankContext, machine: Machine) -> AbstractContextManager[list[Device]]:
    """As many as there are ranks, for the first of them; none for the others."""
    return open_devices(machine, ctx.world_size) if ctx.leads else nullcontext(list[Device]())


def _turns(spec: Spec, machine: Machine, layout: Layout) -> list[Turn]:
    """The scaling and accuracy of every model before any one's options, which are for as many ranks as there are."""
    turns = [Turn(model, layout, "scaling") for model in spec.models]
    turns += [Turn(model, layout, "accuracy") for model in spec.accuracy_models]
    if layout.nodes == 1 and layout.ranks > 1:
        turns += [Turn(model, layout, "one process") for model in spec.models]
    if layout.ranks == machine.num_devices * layout.nodes > 1:
        turns += [Turn(model, layout, "options") for model in spec.models]
    return turns


def _rank(
    ctx: RankContext, spec: Spec, machine: Machine, turns: Sequence[Turn], shared: datasets.Dataset, proven: Proofs
) -> Iterator[Record]:
    dataset = shared.to(ctx.device)
    steps = {model: Steps(ctx, spec, model, dataset.train) for model in spec.models}
    headline = sum(turn.part in ("scaling", "accuracy") for turn in turns)
    for turn in in_equal_parts(turns, label=str, headline=headline):
        if turn.part == "accuracy":
            variants = with_proofs([_epochs(ctx, spec, turn.model, dataset)], proven)
            found = epoch_records(variants, num_epochs=spec.epochs, devices=[ctx], ranks=ctx)
        else:
            found = _timed_steps(steps[turn.model], turn, machine, proven)
        yield from guarded(found, turn.case, metric=turn.metric)


def _timed_steps(own: Steps, turn: Turn, machine: Machine, proven: Proofs) -> Iterator[Record]:
    """Only beside one process does this process open other devices, and leave the cores next to its own."""
    together = turn.part == "one process"
    with _all_devices(own.ctx, machine) if together else nullcontext(list[Device]()) as devices:
        if together:
            variants = own.beside_one_process(turn.case, devices)
        else:
            variants = (own.scaling if turn.part == "scaling" else own.options)(turn.case)
        variants, used = with_proofs(variants, proven), list[Synchronised]([own.ctx, *devices])
        yield from round_records(variants, turn.metric, devices=used, rule=own.spec.measure, ranks=own.ctx, energy=True)


def _epochs(ctx: RankContext, spec: Spec, model: str, dataset: datasets.Dataset) -> Variant:
    ranks = ctx.world_size
    whole = max(1, spec.accuracy_batch_size // ranks) * ranks  # ranks leave out a batch that they cannot share equally
    case: Case = {"workload": model, **ctx.layout.case, "data": dataset.name, "batch_size": whole, "lr": spec.lr}
    batch = CHECK_BATCH * ranks
    at = Epoch(built_in(model, seed=spec.seed, lr=spec.lr, batch_size=whole), ranks)
    small = [at.small(batch, batch * spec.check_steps - ranks, exact=True), at.small(batch, batch)]
    return Variant(name=model, case=case, build=partial(_epoch, ctx, dataset), proven_at=small, timed_at=at)


def _epoch(ctx: RankContext, dataset: datasets.Dataset, at: Epoch) -> Subject:
    """An epoch over the images; batches are those of all ranks together."""
    workload, images, ranks = at.workload, dataset.limited(at.num_images, None), ctx.world_size
    module = workload.network(ctx.device)
    trainer = Trainer(
        wrap(module, ctx),
        images,
        batch_size=workload.batch_size,
        lr=workload.lr,
        seed=workload.seed,
        rank=ctx.rank,
        world_size=ranks,
        frozen=workload.exact,
    )
    steps = len(reference.batches(len(images.train), workload.batch_size, ranks))
    sent = sum(p.nbytes for p in trainable(workload.network(HOST, on_meta=True)))
    return epoch(
        at,
        trainer,
        module,
        f"{workload.name}, an epoch on {progress.counted(ranks, 'rank')}",
        images=images,
        devices=[ctx],
        ranks=ranks,
        shares=ranks,
        counts={"all-reduced bytes": steps * sent},
        agreeing=module.parameters,
    )
