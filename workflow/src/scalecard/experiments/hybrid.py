"""What do data and model parallelism bring together?

Each rank drives two devices with ResNet-50 cut after layer2, and the gradients are averaged over the ranks, within a
node and over nodes: by our own all-reduce of each stage after its backward, and by DistributedDataParallel around the
module on two devices, whose buckets are sent during the backward. Every rank has its own batch, so ideally a step takes
as long as on one rank alone; the same step without averaging is timed in the same rounds.

The answer would be wrong if the ranks drifted apart (every rank's parameters are compared with a plain loop's on all
batches together, in float64 with batch normalisation in eval mode and as timed; afterwards they must be the same bit
for bit on all ranks), or if a rank's waiting were not counted (a sample is the slowest rank's).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from scalecard import progress
from scalecard.benchmarks.training.cut_model import OfResNet50, after, crossing, cut, resnet50
from scalecard.benchmarks.training.strategy import References
from scalecard.distributed import Layout, layouts
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch_and_record
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.interleaved_timing import round_records
from scalecard.measuring.more_ranks import Proofs, proven_on_more_ranks, with_proofs
from scalecard.measuring.prepare import guarded, proofs
from scalecard.measuring.proof import training
from scalecard.measuring.spec import Positive
from scalecard.measuring.stopping_rule import coarse_to_fine, in_equal_parts
from scalecard.parallel.model_parallel import HybridParallel, ModelParallel
from scalecard.parallel.step import Step, state_of
from scalecard.parallel.tutorial_pipeline import TutorialModel
from scalecard.records.axes import Case
from scalecard.records.record import Record
from scalecard.records.strategies import DDP, HYBRID, MODEL_PARALLEL
from scalecard.workloads.nested import leaves
from scalecard.workloads.workload import Workload

DEVICES_EACH = HYBRID.replica_devices  # one for each stage


@dataclass(frozen=True, kw_only=True)
class Spec(OfResNet50):
    nodes: Positive


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """As many ranks as there are, then fewer; over nodes too."""
    ranks_per_node = machine.num_devices // DEVICES_EACH
    if ranks_per_node * spec.nodes < 2:
        needed = f"needs {2 * DEVICES_EACH} devices, or 2 nodes with {DEVICES_EACH}"
        case: Case = {"workload": spec.model, "strategy": HYBRID.name, "ranks": 2}
        yield Record.skipped(case, f"{needed}; this machine has {machine.num_devices}", metric="step_time")
    if ranks_per_node == 0:
        return
    wanted = layouts(ranks_per_node, spec.nodes)
    proven = proven_on_more_ranks(_prove, spec, machine, timed=wanted, machine=machine, devices_each=DEVICES_EACH)
    for layout in in_equal_parts(coarse_to_fine(wanted), label=lambda layout: f"hybrid, {layout}", headline=1):
        yield from launch_and_record(
            *(_rank, spec, machine, proven),
            layout=layout,
            machine=machine,
            cases=[({**_case(spec, layout), "strategy": name}, "step_time") for name in _strategies(layout)],
            devices_each=DEVICES_EACH,
        )


def _prove(ctx: RankContext, spec: Spec, machine: Machine) -> Proofs:
    with open_devices(machine, DEVICES_EACH) as devices:
        return proofs(_variants(ctx, spec, devices, {}), ctx)


def _case(spec: Spec, layout: Layout) -> Case:
    """What the strategies of a layout have in common."""
    case: Case = {"workload": spec.model, **layout.case, "ranks": layout.ranks, "devices": layout.ranks * DEVICES_EACH}
    return {**case, "image_size": spec.image_size, "batch_size": spec.batch_size * layout.ranks}


def _strategies(layout: Layout) -> list[str]:
    """One rank has nothing to average."""
    return [HYBRID.name, DDP.name, MODEL_PARALLEL.name] if layout.ranks > 1 else [MODEL_PARALLEL.name]


def _rank(ctx: RankContext, spec: Spec, machine: Machine, proven: Proofs) -> Iterator[Record]:
    case = _case(spec, ctx.layout)
    with open_devices(machine, DEVICES_EACH, first=ctx.device.index or 0) as devices:
        variants = with_proofs(_variants(ctx, spec, devices, case), proven)
        progress.doing(f"{', '.join(variant.name for variant in variants)} on {ctx.layout}")
        found = round_records(variants, "step_time", devices=devices, rule=spec.measure, ranks=ctx, energy=True)
        yield from guarded(found, case, metric="step_time")


def _variants(ctx: RankContext, spec: Spec, devices: list[Device], case: Case) -> list[Variant]:
    """A step with averaging, by either way, and the same without."""
    groups = {HYBRID.name: [ctx.new_group(device.torch) for device in devices], DDP.name: [ctx.unbound_group()]}
    both = (resnet50(spec), resnet50(spec, exact=True))
    workload, small = (replace(each, batch_size=each.batch_size * ctx.world_size) for each in both)  # of all ranks
    references, variants = References(devices[0].torch, spec.check_steps), []
    for name in _strategies(ctx.layout):
        build = partial(_subject, ctx, devices, name, groups.get(name, ()), references)
        own: Case = {**case, "strategy": name}
        variants.append(Variant(name=name, case=own, build=build, proven_at=[small], timed_at=workload))
    return variants


def _subject(
    ctx: RankContext,
    devices: list[Device],
    name: str,
    groups: Sequence[dist.ProcessGroup],
    references: References,
    everyone: Workload,
) -> Subject:
    """This rank's share; without groups it trains alone on its own batch, and agrees with no other rank."""
    mine = everyone.of_rank(ctx.rank, ctx.world_size)
    trained_on, ranks = (everyone, ctx.world_size) if groups else (mine, 1)
    cuts, times = after(mine.name, 2), references.times(mine)
    model, stages = cut(mine, cuts)
    batch = mine.batch(mine.batch_size, devices[0].torch, devices[-1].torch)
    sent = sum(p.nbytes for p in model.parameters()) if groups else 0
    counts = {"updates": 1, "samples": mine.batch_size, "all-reduced bytes": sent}
    step: Callable[[], object]
    if name == DDP.name:  # around a module on several devices: without device_ids, of which it takes one at most
        module = TutorialModel(stages, [device.torch for device in devices])
        made = Step.of(mine, DistributedDataParallel(module, process_group=groups[0]), batch)
        step = partial(devices[0].submit, made)
    else:  # by our own executor
        executor = partial(HybridParallel, groups=groups) if groups else ModelParallel
        staged = executor(stages, devices, optimizer=mine.optimizer_settings, loss=mine.loss)
        step = partial(staged.step, *batch, split_size=mine.batch_size)
        received = sum(leaf.nbytes for leaf in leaves(batch[0]))
        received += sum(crossing(mine, cuts, mine.batch_size, devices[0].torch))
        counts |= {"received bytes": received, "all-reduces": len(groups)}
    return training(
        f"batches of {progress.counted(ranks, 'rank')}",
        step,
        partial(state_of, model),
        references.at(trained_on, (mine.batch_size,) * ranks),
        times=times,
        devices=devices,
        counts={} if mine.exact else {**counts, **references.counts(mine, (mine.batch_size,))},
        module=stages[0],
        agreeing=model.parameters if groups else tuple,
    )
