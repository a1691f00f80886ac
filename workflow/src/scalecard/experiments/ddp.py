"""How well does DistributedDataParallel scale, how much communication does it hide, and which options pay?

One process a device. Strong scaling keeps the whole batch, weak scaling the batch a rank. At the largest number of
ranks every option is timed beside the default; the share of communication hidden behind backward comes from the
difference of steps with and without synchronising, over the all-reduce alone, measured in the same rounds.

It would be wrong if the ranks computed something else (parameters are proven equal to the single device's in float64,
batch normalisation in eval mode: its statistics are per rank, another function), or if a rank's waiting were not
counted (a sample is the slowest rank's).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import Len

from scalecard import data, measure, nodes, progress
from scalecard.failures import guarded
from scalecard.machine import Machine
from scalecard.meeting import layouts
from scalecard.models import MODELS, freeze_batch_norm
from scalecard.parallel.ddp import Stepper, all_reduce_alone, wrap
from scalecard.proof import same_parameters
from scalecard.ranks import RankContext, measured
from scalecard.schema import Case, Check, Record
from scalecard.specs import Common, Positive, Rate, Sweep
from scalecard.training import Trainer

Model = Literal["lenet", "resnet18"]


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    nodes: Positive
    models: Annotated[tuple[Model, ...], Len(min_length=1)]
    batch_size: Positive
    buckets_mib: Annotated[tuple[Positive | None, ...], Len(min_length=1)]
    hooks: tuple[Literal["fp16", "bf16"], ...]
    accumulation: Sweep
    accuracy_models: tuple[Model, ...]
    accuracy_batch_size: Positive
    lr: Rate
    epochs: Positive
    train_images: Positive | None
    test_images: Positive | None
    check_steps: Positive


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Scaling over 1..N ranks, and over nodes, the options at most ranks of either, accuracy."""
    with nodes.first_node_first("images"):
        dataset = data.load(spec.dataset, Path(spec.data_dir)).limited(spec.train_images, spec.test_images)
    wanted = layouts(machine.num_devices, spec.nodes)
    for layout in progress.cases(wanted, label=lambda layout: f"DDP on {layout}"):
        yield from measured(_rank, spec, machine, dataset, layout=layout, machine=machine, case={}, metric="step_time")
    if machine.num_devices == 1:
        note = "needs 2 devices, this machine has 1"
        yield Record(case={"devices": 2}, metric="step_time", unit="s", status="skipped", note=note)


def _rank(ctx: RankContext, spec: Spec, machine: Machine, shared: data.Dataset) -> list[Record]:
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


def _scaling(ctx: RankContext, spec: Spec, model: str, dataset: data.Dataset, checks: list[Check]) -> Iterator[Record]:
    """The whole batch shared (strong), and the whole batch on every rank (weak); one rank also without DDP."""
    share = max(1, spec.batch_size // ctx.world_size)
    sizes = {"strong": share, "weak": spec.batch_size} if ctx.world_size > 1 else {"strong": spec.batch_size}
    steps = {name: Stepper(wrap(MODELS[model](seed=spec.seed), ctx), dataset, size) for name, size in sizes.items()}
    if ctx.world_size == 1:
        steps["plain"] = Stepper(MODELS[model](seed=spec.seed).to(ctx.device), dataset, spec.batch_size)
    progress.doing(f"{model}: scaling on {ctx.layout}")
    works = {name: step.step for name, step in steps.items()}
    for name, timing in measure.rounds(works, devices=[ctx], rule=spec.measure, ranks=ctx).items():
        case: Case = {"model": model, **ctx.layout.case, "scaling": name}
        case["batch_size"] = sizes.get(name, spec.batch_size) * ctx.world_size
        yield timing.record(case, metric="step_time", checks=checks)


def _options(ctx: RankContext, spec: Spec, model: str, dataset: data.Dataset, checks: list[Check]) -> Iterator[Record]:
    """Every option beside the default, strong scaling, in the same rounds."""
    share = max(1, spec.batch_size // ctx.world_size)

    def stepper(**options: Any) -> Stepper:
        return Stepper(wrap(MODELS[model](seed=spec.seed), ctx, **options), dataset, share)

    default = stepper()
    works: dict[str, Callable[[], object]] = {"default": default.step, "no_sync": default.step_without_sync}
    works["all-reduce alone"] = all_reduce_alone(default.model)
    works |= {f"bucket {cap} MiB": stepper(bucket_cap_mb=cap).step for cap in spec.buckets_mib if cap is not None}
    works["gradient_as_bucket_view"] = stepper(gradient_as_bucket_view=True).step
    works["static_graph"] = stepper(static_graph=True).step
    works |= {f"{hook} hook": stepper(hook=hook).step for hook in spec.hooks}
    works |= {
        f"accumulate {count}": partial(default.accumulated_step, count) for count in spec.accumulation if count > 1
    }
    progress.doing(f"{model}: {len(works)} options on {ctx.layout}")
    for name, timing in measure.rounds(works, devices=[ctx], rule=spec.measure, ranks=ctx).items():
        case: Case = {"model": model, **ctx.layout.case, "option": name, "batch_size": share * ctx.world_size}
        case["steps"] = int(name.removeprefix("accumulate ")) if name.startswith("accumulate") else 1
        yield timing.record(case, metric="step_time", checks=checks)


def _accuracy(ctx: RankContext, spec: Spec, model: str, dataset: data.Dataset) -> Iterator[Record]:
    """Test accuracy after every epoch, and the epochs' seconds."""
    wrapped = wrap(MODELS[model](seed=spec.seed), ctx)
    trainer = Trainer(wrapped, dataset, spec.accuracy_batch_size, spec.lr, spec.seed, ctx.rank, ctx.world_size)
    accuracies: list[float] = []
    (timing,) = measure.epochs(
        {f"{model} on {ctx.layout}": trainer.epoch},
        num_epochs=spec.epochs,
        devices=[ctx],
        after=lambda name: accuracies.append(trainer.accuracy()),
        ranks=ctx,
    ).values()
    case: Case = {"model": model, **ctx.layout.case, "data": dataset.name}
    case |= {"batch_size": spec.accuracy_batch_size, "lr": spec.lr}
    yield timing.record(case, metric="epoch_time")
    yield Record(case=case, metric="accuracy", unit="fraction", samples=accuracies)


def _check(ctx: RankContext, spec: Spec, model: str, dataset: data.Dataset) -> Check:
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
