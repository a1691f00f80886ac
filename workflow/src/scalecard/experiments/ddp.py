"""How well does DistributedDataParallel scale, how much communication does it hide, and which options pay?

One process per device. Strong scaling keeps the batch of all ranks fixed, weak scaling the batch of each. At the
largest number of ranks every option is timed beside the default. The share of communication hidden behind backward is
1 - (step - step without synchronising) / all-reduce alone, all measured in the same rounds.

The answer would be wrong if the ranks computed something else (parameters are proven equal to the single device's in
float64, with batch normalisation in eval mode, because per-rank statistics are a different function), or if a rank's
waiting were not counted (a sample is the slowest rank's).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import Len

from scalecard import progress
from scalecard.distributed import nodes
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch_and_record
from scalecard.distributed.layout import layouts
from scalecard.hardware.machine import Machine
from scalecard.measuring.epochs import time_epochs
from scalecard.measuring.out_of_memory import guarded
from scalecard.measuring.proof import same_parameters
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.spec import Common, EachOnce, Positive, Rate, Sweep
from scalecard.measuring.variant import Variant, Work
from scalecard.records.record import Case, Check, Record
from scalecard.training import datasets
from scalecard.training.ddp import Stepper, all_reduce_alone, wrap
from scalecard.training.models import MODELS, freeze_batch_norm
from scalecard.training.trainer import Trainer

Model = Literal["lenet", "resnet18"]


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


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Scaling over 1..N ranks and over nodes; the options at the largest number of ranks of each; accuracy."""
    with nodes.first_node_first("images"):
        dataset = datasets.load(spec.dataset, Path(spec.data_dir)).limited(spec.train_images, spec.test_images)
    wanted = layouts(machine.num_devices, spec.nodes)
    for layout in progress.cases(wanted, label=lambda layout: f"DDP on {layout}"):
        yield from launch_and_record(
            *(_rank, spec, machine, dataset), layout=layout, machine=machine, case={}, metric="step_time"
        )
    if machine.num_devices == 1:
        yield Record.skipped({"devices": 2}, "needs 2 devices, this machine has 1", metric="step_time")


def _rank(ctx: RankContext, spec: Spec, machine: Machine, shared: datasets.Dataset) -> list[Record]:
    dataset, records = shared.to(ctx.device), list[Record]()
    for model in spec.models:
        progress.doing(f"{model}: proving equality on {ctx.layout} in float64")
        checks = [_check(ctx, spec, model, dataset)]
        case: Case = {"model": model, **ctx.layout.case}
        records += guarded(_scaling(ctx, spec, model, dataset, checks), case, metric="step_time")
        if ctx.world_size == machine.num_devices * ctx.layout.nodes > 1:
            records += guarded(_options(ctx, spec, model, dataset, checks), case, metric="step_time")
    for model in spec.accuracy_models:
        case = {"model": model, **ctx.layout.case}
        records += guarded(_accuracy(ctx, spec, model, dataset), case, metric="epoch_time")
    return records


def _scaling(
    ctx: RankContext, spec: Spec, model: str, dataset: datasets.Dataset, checks: list[Check]
) -> Iterator[Record]:
    """The whole batch shared (strong), and a whole batch on every rank (weak); one rank also without DDP."""
    sizes = {"strong": max(1, spec.batch_size // ctx.world_size)}
    sizes["weak" if ctx.world_size > 1 else "plain"] = spec.batch_size
    variants = []
    for name, size in sizes.items():
        module = MODELS[model](seed=spec.seed)
        stepper = Stepper(module.to(ctx.device) if name == "plain" else wrap(module, ctx), dataset, size)
        case: Case = {"model": model, **ctx.layout.case, "scaling": name, "batch_size": size * ctx.world_size}
        variants.append(Variant(name=name, case=case, work=stepper.step, checks=checks))
    progress.doing(f"{model}: scaling on {ctx.layout}")
    for timing in time_rounds(variants, devices=[ctx], rule=spec.measure, ranks=ctx):
        yield timing.record("step_time")


def _options(
    ctx: RankContext, spec: Spec, model: str, dataset: datasets.Dataset, checks: list[Check]
) -> Iterator[Record]:
    """Every option beside the default, strong scaling, in the same rounds."""
    share = max(1, spec.batch_size // ctx.world_size)

    def stepper(**options: Any) -> Stepper:
        return Stepper(wrap(MODELS[model](seed=spec.seed), ctx, **options), dataset, share)

    default = stepper()
    works: dict[str, Work] = {"default": default.step, "no_sync": default.step_without_sync}
    works["all-reduce alone"] = all_reduce_alone(default.model)
    works |= {f"bucket {cap} MiB": stepper(bucket_cap_mb=cap).step for cap in spec.buckets_mib if cap is not None}
    works["gradient_as_bucket_view"] = stepper(gradient_as_bucket_view=True).step
    works["static_graph"] = stepper(static_graph=True).step
    works |= {f"{hook} hook": stepper(hook=hook).step for hook in spec.hooks}
    works |= {
        f"accumulate {count}": partial(default.accumulated_step, count) for count in spec.accumulation if count > 1
    }
    variants = []
    for name, work in works.items():
        case: Case = {"model": model, **ctx.layout.case, "option": name, "batch_size": share * ctx.world_size}
        case["steps"] = int(name.removeprefix("accumulate ")) if name.startswith("accumulate") else 1
        variants.append(Variant(name=name, case=case, work=work, checks=checks))
    progress.doing(f"{model}: {len(works)} options on {ctx.layout}")
    for timing in time_rounds(variants, devices=[ctx], rule=spec.measure, ranks=ctx):
        yield timing.record("step_time")


def _accuracy(ctx: RankContext, spec: Spec, model: str, dataset: datasets.Dataset) -> Iterator[Record]:
    """Test accuracy after every epoch, and the seconds that each epoch took."""
    wrapped = wrap(MODELS[model](seed=spec.seed), ctx)
    trainer = Trainer(wrapped, dataset, spec.accuracy_batch_size, spec.lr, spec.seed, ctx.rank, ctx.world_size)
    case: Case = {"model": model, **ctx.layout.case, "data": dataset.name}
    case |= {"batch_size": spec.accuracy_batch_size, "lr": spec.lr}
    accuracies: list[float] = []
    (timing,) = time_epochs(
        [Variant(name=f"{model} on {ctx.layout}", case=case, work=trainer.epoch)],
        num_epochs=spec.epochs,
        devices=[ctx],
        after=lambda variant: accuracies.append(trainer.accuracy()),
        ranks=ctx,
    )
    yield timing.record("epoch_time")
    yield Record(case=case, metric="accuracy", unit="fraction", samples=[accuracies])


def _check(ctx: RankContext, spec: Spec, model: str, dataset: datasets.Dataset) -> Check:
    """Parameters after several float64 steps against the single device, which every rank computes for itself."""
    batch_size = 2 * ctx.world_size

    def train(distributed: bool) -> list[torch.Tensor]:
        module = MODELS[model](seed=spec.seed).double().to(ctx.device)
        wrapped = wrap(module, ctx) if distributed else module
        rank, world_size = (ctx.rank, ctx.world_size) if distributed else (0, 1)
        trainer = Trainer(wrapped, dataset, batch_size, spec.lr, spec.seed)
        freeze_batch_norm(module.train())
        for images, labels in dataset.train.first(batch_size * spec.check_steps).batches(batch_size):
            mine = slice(rank * len(labels) // world_size, (rank + 1) * len(labels) // world_size)
            trainer.step(images[mine].double(), labels[mine])
        return list(module.parameters())

    name = f"{model}: parameters after {spec.check_steps} steps, batch norm in eval mode"
    return same_parameters(name, train(True), train(False))
