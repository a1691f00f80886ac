"""What do data and model parallelism bring together?

Each rank drives two devices with ResNet-50 cut after layer2, and the gradients are averaged over the ranks, within a
node and over nodes. Every rank keeps a batch of its own, so ideally a step takes as long as that of one rank alone; the
same step without averaging is timed in the same rounds.

It would be wrong if the ranks drifted apart (parameters are proven equal to the single device's on the whole batch in
float64, batch normalisation in eval mode), or if a rank's waiting were not counted (a sample is the slowest rank's).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist

from scalecard import measure, progress
from scalecard.devices import Device, open_devices
from scalecard.failures import guarded
from scalecard.machine import Machine
from scalecard.meeting import layouts
from scalecard.models import resnet50_stages
from scalecard.parallel.hybrid import HybridParallel
from scalecard.parallel.model import ModelParallel
from scalecard.parallel.workload import Workload, one_hot_images, reference, trained
from scalecard.proof import same_parameters
from scalecard.ranks import RankContext, measured
from scalecard.schema import Case, Check, Record
from scalecard.specs import Common, Positive, Rate

DEVICES_EACH = 2  # of a rank: one a stage


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
    ranks_a_node = machine.num_devices // DEVICES_EACH
    if ranks_a_node * spec.nodes < 2:
        note = (
            f"needs {2 * DEVICES_EACH} devices, or 2 nodes with {DEVICES_EACH}; this machine has {machine.num_devices}"
        )
        case: Case = {"model": "resnet50", "strategy": "hybrid", "ranks": 2}
        yield Record(case=case, metric="time", unit="s", status="skipped", note=note)
    if ranks_a_node == 0:
        return
    for layout in progress.cases(layouts(ranks_a_node, spec.nodes), label=lambda layout: f"hybrid, {layout}"):
        yield from measured(
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
    load = Workload(spec.batch_size, spec.image_size, spec.num_classes, spec.lr, spec.seed + ctx.rank)
    images, targets = one_hot_images(load, devices[0].torch, devices[-1].torch)
    works: dict[str, measure.Work] = {}
    if ctx.world_size > 1:
        works["hybrid"] = partial(
            HybridParallel(_stages(spec), devices, lr=spec.lr, groups=groups).step, images, targets
        )
    works["model parallel"] = partial(ModelParallel(_stages(spec), devices, lr=spec.lr).step, images, targets)
    progress.doing(f"{', '.join(works)} on {ctx.layout}")
    for name, timing in measure.rounds(works, devices=devices, rule=spec.measure, ranks=ctx).items():
        checks = [check] if name == "hybrid" or ctx.world_size == 1 else []
        yield timing.record({**case, "strategy": name}, checks=checks)


def _stages(spec: Spec) -> list[torch.nn.Module]:
    return resnet50_stages(seed=spec.seed, num_classes=spec.num_classes)


def _check(ctx: RankContext, spec: Spec, devices: Sequence[Device], groups: Sequence[dist.ProcessGroup]) -> Check:
    """Parameters after several float64 steps on all ranks' batches against one device, which every rank computes."""
    whole = Workload(
        spec.check_batch_size * ctx.world_size, spec.check_image_size, spec.num_classes, spec.lr, spec.seed
    )
    mine = slice(ctx.rank * spec.check_batch_size, (ctx.rank + 1) * spec.check_batch_size)

    def step(model: ModelParallel, images: torch.Tensor, targets: torch.Tensor) -> None:
        model.step(images[mine], targets[mine])

    ours = trained(whole, devices, step, spec.check_steps, partial(HybridParallel, groups=groups))
    name = f"parameters after {spec.check_steps} steps, batch norm in eval mode"
    return same_parameters(name, ours, reference(whole, devices[0], spec.check_steps))
