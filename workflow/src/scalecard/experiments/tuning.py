"""What makes one device faster before more are bought, and does it still train the same?

TF32, bfloat16, channels-last, a fused optimiser, cuDNN's own choice of kernels, torch.compile, CUDA graphs, more
batches per update and larger batches: each alone on the plain step of the workload's recipe, with its optimiser and in
its precision, then one on top of the other, on one device and under DDP. All of a workload take turns in the same
rounds. What compiling costs is a record of its own. Then the textbook's ResNet-18 is trained for whole epochs in
float32 and with the combination whose steps were the fastest.

The answer would be wrong if a faster step computed something else (each is compared with a plain loop in float64; what
rounds to fewer digits must, after a step, have a loss as close to float32's as random errors of that size leave it;
compiled code must run in every forward), if a switch stayed on for the others (each step sets and resets them), or if
compiling were part of a sample.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from scalecard import progress
from scalecard.benchmarks.training.epochs import Epoch, OfImages, epoch
from scalecard.benchmarks.training.strategy import with_compilation_checked
from scalecard.benchmarks.training.tuning import Combination, Ladder, RoundedReferences
from scalecard.benchmarks.training.validate import OfWorkloads, Workloads, examined
from scalecard.distributed import Layout
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch_and_record
from scalecard.hardware.failures import in_one_line, reason_of
from scalecard.hardware.machine import Machine
from scalecard.measuring import shared_decisions
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.interleaved_timing import epoch_records
from scalecard.measuring.memory import NO_PEAK
from scalecard.measuring.prepare import guarded, too_few_devices
from scalecard.measuring.spec import AtLeastTwo, Distinct, Positive, Rate, Several
from scalecard.measuring.stopping_rule import in_equal_parts
from scalecard.parallel.tuned_step import TunedTrainer
from scalecard.records.axes import Case, rungs_of
from scalecard.records.record import Check, Record
from scalecard.records.strategies import SINGLE
from scalecard.workloads import datasets, reference
from scalecard.workloads.compiled import empty_cache_of_code
from scalecard.workloads.recipe import OptimizerSettings, precision_on
from scalecard.workloads.workload import Workload, built_in

CHECK_BATCH = 2
Rung = Literal["tf32", "bf16", "channels_last", "fused", "benchmark", "compile", "graphs"]


@dataclass(frozen=True, kw_only=True)
class Spec(OfWorkloads, OfImages):
    workloads: Workloads
    rungs: Several[Rung]
    accumulation: Distinct[AtLeastTwo]
    larger_batches: Distinct[AtLeastTwo]
    epochs_of: Literal["lenet", "resnet18"] | None
    epoch_batch_size: Positive
    lr: Rate

    @property
    def of_epochs(self) -> list[Workload]:
        """The model whose epochs are timed as well, unless its steps are timed anyway."""
        named = [self.epochs_of] if self.epochs_of and self.epochs_of not in self.workloads else []
        return [built_in(name, seed=self.seed, batch_size=self.epoch_batch_size) for name in named]


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Every workload on one device, and epochs there; then every workload under DDP on all devices.

    A workload that turns out not to be trainable is a failed record.
    """
    dataset = spec.images() if spec.epochs_of else None
    if machine.kind == "cpu":
        for workload in spec.loads:
            yield Record.skipped({"workload": workload.name}, NO_PEAK, metric="peak_memory", unit="B")
    wanted = [(1, workload) for workload in (*spec.loads, *spec.of_epochs)]
    wanted += [(machine.num_devices, workload) for workload in spec.loads if machine.num_devices > 1]
    for count, workload in in_equal_parts(wanted, label=lambda turn: _label(*turn), headline=len(spec.loads)):
        case: Case = {"workload": workload.name, "devices": count}
        images = dataset if count == 1 and workload.name == spec.epochs_of else None
        yield from launch_and_record(
            *(_rank, spec, workload, images),
            layout=Layout(count),
            machine=machine,
            cases=[(case, "step_time"), *([(case, "epoch_time")] if images else [])],
        )
    yield from too_few_devices({"devices": 2}, machine, metric="step_time")


def _label(count: int, workload: Workload) -> str:
    return f"tuning {workload.name} on {progress.counted(count, 'device')}"


def _rank(ctx: RankContext, spec: Spec, workload: Workload, dataset: datasets.Dataset | None) -> Iterator[Record]:
    """A workload's ladder in processes of its own; with images, also epochs of this model with its fastest rungs."""
    case: Case = {"workload": workload.name, "devices": ctx.world_size}
    with empty_cache_of_code(ctx):
        records = list[Record]()
        for record in guarded(_ladder(ctx, spec, workload, case), case, metric="step_time"):
            records.append(record)
            yield record
        if dataset:
            best = Combination(tuple(shared_decisions.decided("fastest-rungs", partial(_fastest, records))))
            epochs = _epochs(ctx, spec, dataset, [*dict.fromkeys([Combination(), best])])
            yield from guarded(epochs, case, metric="epoch_time")


def _ladder(ctx: RankContext, spec: Spec, workload: Workload, case: Case) -> Iterator[Record]:
    """With a learning rate that all ranks agree on. The model of the epochs is looked at with its rungs alone."""
    base = ("bf16",) if precision_on(ctx.device, workload.recipe.precision) == "bf16" else ()
    naive = replace(workload.recipe, precision="float32", channels_last=False, compile=False)  # which are rungs
    found = examined(replace(workload, recipe=naive), ctx.device, spec.check_steps, ctx.world_size)
    everywhere: list[Workload] = ctx.all_gather(found)
    workload = replace(max(everywhere, key=lambda one: one.lr), each=workload.batch_size)
    whole = workload.name in spec.workloads
    yield from Ladder(
        ctx,
        RoundedReferences(ctx.device, spec.check_steps),
        workload,
        base,
        case,
        spec.measure,
        wanted=spec.rungs,
        counts=spec.accumulation if whole else (),
        factors=spec.larger_batches if whole and ctx.world_size == 1 else (),
    ).records()


def _fastest(records: list[Record]) -> list[str]:
    """The rungs of the fastest step over one batch of the usual size; none if the plain one is the fastest."""
    usual = [r for r in records if r.metric == "step_time" and r.matches(accumulate=None, batch_factor=None)]
    timed = [record for record in usual if record.status == "ok"]
    return list(rungs_of(min(timed, key=lambda record: record.median).case)) if timed else []


def _epochs(
    ctx: RankContext, spec: Spec, dataset: datasets.Dataset, combinations: Sequence[Combination]
) -> Iterator[Record]:
    """Of float32 and of the fastest rungs. On a GPU, whatever a library says of those, float32 is measured."""
    images = dataset.to(ctx.device)
    variants = [_variant(ctx, spec, images, combination) for combination in combinations]
    timed = partial(epoch_records, num_epochs=spec.epochs, devices=[ctx])
    try:
        yield from timed(variants)
    except Exception as error:  # before anything was timed
        if ctx.device.type == "cpu" or len(variants) == 1:
            raise
        yield Record.failed(variants[-1].case, in_one_line(error), reason=reason_of(error), metric="epoch_time")
        yield from timed(variants[:1])


def _variant(ctx: RankContext, spec: Spec, dataset: datasets.Dataset, combination: Combination) -> Variant:
    case: Case = {"workload": spec.epochs_of, "devices": 1, "strategy": SINGLE.name, **combination.case}
    case |= {"data": dataset.name, "batch_size": spec.epoch_batch_size, "lr": spec.lr}
    at = Epoch(built_in(str(spec.epochs_of), seed=spec.seed, lr=spec.lr, batch_size=spec.epoch_batch_size), 1)
    small, build = at.small(CHECK_BATCH, CHECK_BATCH * spec.check_steps - 1, exact=True), partial(_epoch, ctx, dataset)
    return Variant(name=str(combination), case=case, build=partial(build, combination), proven_at=[small], timed_at=at)


def _epoch(ctx: RankContext, dataset: datasets.Dataset, combination: Combination, at: Epoch) -> Subject:
    """An epoch over the images. What is compiled or recorded is so in an epoch of its own, before any is timed."""
    workload, images = at.workload, dataset.limited(at.num_images, None)
    module = workload.network(ctx.device)
    trainer = TunedTrainer(
        module,
        images,
        batch_size=workload.batch_size,
        lr=workload.lr,
        seed=workload.seed,
        frozen=workload.exact,
        rungs=combination.rungs,
    )
    steps = len(reference.batches(len(images.train), workload.batch_size))
    subject = epoch(
        at,
        trainer,
        module,
        f"{workload.name}, an epoch with {combination}",
        images=images,
        devices=[ctx],
        unseen=["updates", *([] if combination.seen else ["FLOPs", "samples"])],
        counts=combination.updates(OptimizerSettings(workload.lr), steps),
    )

    def warm() -> Iterator[Check]:
        yield from subject.prove()
        if not (combination.seen or workload.exact):
            trainer.epoch()

    warmed, code = replace(subject, prove=warm), trainer.tuned.compiled
    return with_compilation_checked(warmed, [code]) if code else warmed
