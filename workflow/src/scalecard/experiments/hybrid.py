"""What do data and model parallelism bring together?

Each rank drives two devices with ResNet-50 cut after layer2, and the gradients are averaged over the ranks, within a
node and over nodes. Every rank has its own batch, so ideally a step takes as long as on one rank alone; the same step
without averaging is timed in the same rounds.

The answer would be wrong if the ranks drifted apart (parameters are proven equal to the single device's on the whole
batch in float64, with batch normalisation in eval mode), or if a rank's waiting were not counted (a sample is the
slowest rank's).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.distributed as dist

from scalecard import progress
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch_and_record
from scalecard.distributed.layout import layouts
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.out_of_memory import guarded
from scalecard.measuring.proof import same_parameters
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.spec import Common, Positive, Rate
from scalecard.measuring.variant import Variant
from scalecard.records.record import Case, Check, Record
from scalecard.training.hybrid_parallel import HybridParallel
from scalecard.training.model_parallel import ModelParallel
from scalecard.training.resnet50 import Workload, one_hot_images, reference, trained

DEVICES_EACH = 2  # per rank: one for each stage


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    nodes: Positive
    batch_size: Positive
    image_size: Positive
    num_classes: Positive
    lr: Rate
    check_batch_size: Positive
    check_image_size: Positive
    check_steps: Positive


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """One rank, then several within a node and over nodes."""
    ranks_per_node = machine.num_devices // DEVICES_EACH
    if ranks_per_node * spec.nodes < 2:
        needed = f"needs {2 * DEVICES_EACH} devices, or 2 nodes with {DEVICES_EACH}"
        case: Case = {"model": "resnet50", "strategy": "hybrid", "ranks": 2}
        yield Record.skipped(case, f"{needed}; this machine has {machine.num_devices}")
    if ranks_per_node == 0:
        return
    for layout in progress.cases(layouts(ranks_per_node, spec.nodes), label=lambda layout: f"hybrid, {layout}"):
        yield from launch_and_record(
            *(_rank, spec, machine),
            layout=layout,
            machine=machine,
            case={"devices": layout.ranks * DEVICES_EACH, "ranks": layout.ranks},
            metric="time",
            devices_each=DEVICES_EACH,
        )


def _rank(ctx: RankContext, spec: Spec, machine: Machine) -> list[Record]:
    case: Case = {"model": "resnet50", **ctx.layout.case, "ranks": ctx.world_size}
    case |= {"devices": ctx.world_size * DEVICES_EACH, "image_size": spec.image_size}
    case["batch_size"] = spec.batch_size * ctx.world_size
    with open_devices(machine, DEVICES_EACH, first=ctx.device.index or 0) as devices:
        return list(guarded(_steps(ctx, spec, devices, case), case))


def _steps(ctx: RankContext, spec: Spec, devices: list[Device], case: Case) -> Iterator[Record]:
    """A step with averaging and the same without; one rank has nothing to average."""
    groups = [ctx.new_group() for _ in devices]
    progress.doing(f"proving equality on {ctx.layout} in float64")
    check = _check(ctx, spec, devices, groups)
    load = Workload.of(spec)
    models: dict[str, ModelParallel] = {}
    if ctx.world_size > 1:
        models["hybrid"] = HybridParallel(load.stages(), devices, lr=spec.lr, groups=groups)
    models["model parallel"] = ModelParallel(load.stages(), devices, lr=spec.lr)
    own_batch = replace(load, seed=load.seed + ctx.rank)
    inputs = one_hot_images(own_batch, devices[0].torch, devices[-1].torch)
    variants = []
    for name, model in models.items():
        checks = [check] if name == "hybrid" or ctx.world_size == 1 else []
        own: Case = {**case, "strategy": name}
        variants.append(Variant(name=name, case=own, work=partial(model.step, *inputs), checks=checks))
    progress.doing(f"{', '.join(models)} on {ctx.layout}")
    for timing in time_rounds(variants, devices=devices, rule=spec.measure, ranks=ctx):
        yield timing.record()


def _check(ctx: RankContext, spec: Spec, devices: Sequence[Device], groups: Sequence[dist.ProcessGroup]) -> Check:
    """Parameters after several float64 steps on all ranks' batches against one device, which every rank computes."""
    whole = replace(Workload.of_check(spec), batch_size=spec.check_batch_size * ctx.world_size)
    mine = slice(ctx.rank * spec.check_batch_size, (ctx.rank + 1) * spec.check_batch_size)

    def step(model: ModelParallel, images: torch.Tensor, targets: torch.Tensor) -> None:
        model.step(images[mine], targets[mine])

    ours = trained(whole, devices, step, spec.check_steps, partial(HybridParallel, groups=groups))
    name = f"parameters after {spec.check_steps} steps, batch norm in eval mode"
    return same_parameters(name, ours, reference(whole, devices[0], spec.check_steps))
