"""Which way to split a model over devices is the fastest, which needs the least memory, and which cannot be used?

Each workload of config.yaml, ours or the user's, is trained by every strategy on 1, 2, 4 ... N devices, with the batch
of one device shared by all (strong scaling) and with as many samples on each (weak scaling). What cannot be done is a
record with its reason. Then, on all devices of a node, what a checkpoint costs; and on one device and on all of a node
other recipes than its own: in the other precision, with and without recomputed blocks.

The answer would be wrong if a strategy trained something else (each is compared with a plain loop, in float64 without
dropout and with batch normalisation in eval mode, and as timed), if it did less (updates and forward passes are
counted, and operations and bytes where there is a closed form), or if strategies were timed at different times (those
of one process take turns on as many devices, and so do those of ranks).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch

from scalecard import progress
from scalecard.benchmarks.training import builders, checkpoint_cost
from scalecard.benchmarks.training.checkpoint_cost import SAVE
from scalecard.benchmarks.training.not_a_workload import NotAWorkload
from scalecard.benchmarks.training.run_group import Group
from scalecard.benchmarks.training.stage_timing import schedules_played as played
from scalecard.benchmarks.training.strategy import References
from scalecard.benchmarks.training.validate import OfWorkloads, Workloads, by_other_recipes, examined, varies
from scalecard.distributed import Layout, layouts
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch, launch_and_record
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.failures import in_one_line
from scalecard.hardware.machine import Machine
from scalecard.measuring import shared_decisions
from scalecard.measuring.counting import flops
from scalecard.measuring.memory import NO_PEAK
from scalecard.measuring.prepare import too_few_devices
from scalecard.measuring.spec import AtLeastTwo, Common, Distinct, Positive, Several
from scalecard.measuring.stopping_rule import in_equal_parts
from scalecard.measuring.timer import Synchronised
from scalecard.records.axes import Case
from scalecard.records.record import Reason, Record, Unit
from scalecard.records.strategies import OTHER_RECIPE
from scalecard.workloads.compiled import empty_cache_of_code
from scalecard.workloads.recipe import Checkpointing
from scalecard.workloads.workload import Workload

# Of the record that says that nothing was measured, and its unit.
METRICS: Mapping[str, tuple[str, Unit]] = {
    "times": ("step_time", "s"),
    "largest batches": ("largest_batch", "samples"),
    "checkpoints": (SAVE, "s"),
}
NO_LIMIT = "CPU workers and ranks share the host's memory: no batch is the largest that a device holds"


@dataclass(frozen=True, kw_only=True)
class Spec(OfWorkloads, Common):
    nodes: Positive
    workloads: Workloads
    scaling: Several[Literal["strong", "weak"]]
    micro_batches: AtLeastTwo
    precision: Distinct[Literal["float32", "bf16"]]
    checkpointing: Distinct[Checkpointing]
    check_steps: Positive
    trace: bool


@dataclass(frozen=True)
class Turn:
    """What is launched together: a workload on a layout of devices, by one process or by ranks, and what is measured.

    With `other`, its recipe is not the workload's own.
    """

    workload: Workload
    layout: Layout
    ranks: bool
    measured: Literal["times", "largest batches", "checkpoints"] = "times"
    other: bool = False

    @property
    def case(self) -> Case:
        return {"workload": self.workload.name, **self.layout.case, **self.workload.recipe_axes}

    def __str__(self) -> str:
        count = progress.counted(self.layout.ranks, "device")
        what = f"{self.workload.name}, {self.layout if self.ranks else f'one process on {count}'}"
        named = ", ".join([self.workload.recipe.precision, *["recomputed"] * self.workload.recomputes])
        what += f", by another recipe ({named})" if self.other else ""
        return what if self.measured == "times" else f"{what}, {self.measured}"


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Every workload on one device and on all ranks, then by the other layouts, the largest batches, other recipes.

    A workload that turns out not to be trainable is a failed record; over several nodes, which are not told of it, that
    is a ValueError before anything is measured.
    """
    spec = replace(spec, trace=spec.trace and shared_decisions.first("traces"))
    workloads, others, absent = _examined(spec, machine)
    yield from absent
    for workload in workloads:
        case: Case = {"workload": workload.name}
        if machine.kind == "cpu":
            yield Record.skipped(case, NO_PEAK, metric="peak_memory", unit="B")
            yield Record.skipped(case, NO_LIMIT, metric="largest_batch", unit="samples")
        yield from too_few_devices({**case, "devices": 2}, machine, metric="step_time")
    ends = 1 if machine.num_devices * spec.nodes == 1 else 2  # one device, and all ranks
    turns = [*_turns(spec, machine, workloads), *_other_turns(machine, others)]
    for turn in in_equal_parts(turns, label=str, headline=ends * len(workloads)):
        for record in _launched(spec, machine, turn):
            yield replace(record, metric=OTHER_RECIPE[record.metric]) if turn.other else record


def _turns(spec: Spec, machine: Machine, workloads: Sequence[Workload]) -> list[Turn]:
    """In the order of importance, since time may be short.

    Times come before the largest batches, so that a rank that is lost then costs no times. Each turn has processes of
    its own, so that the devices' memory is free afterwards. The largest batches and checkpoints are for the run's first
    process.
    """
    wanted = layouts(machine.num_devices, spec.nodes)
    groups = [(layout, False) for layout in wanted if layout.nodes == 1]
    groups += [(layout, True) for layout in wanted if layout.ranks > 1]
    groups.sort(key=lambda group: group not in ((wanted[0], False), (wanted[-1], True)))
    turns = [Turn(workload, *group) for group in groups for workload in workloads]
    if machine.kind != "cpu":
        turns += [replace(turn, measured="largest batches") for turn in turns if _is_first(turn)]
    all_of_a_node = layouts(machine.num_devices, 1)[-1]
    saving = [Turn(workload, all_of_a_node, ranks=True, measured="checkpoints") for workload in workloads]
    return turns + [turn for turn in saving if _is_first(turn)]


def _other_turns(machine: Machine, others: Sequence[Workload]) -> list[Turn]:
    """By other recipes on one device and on all of a node, for the run's first process; other nodes have no part."""
    wanted = layouts(machine.num_devices, 1)
    groups = [(wanted[0], False), *([(wanted[-1], True)] if len(wanted) > 1 else [])]
    turns = [Turn(workload, *group, other=True) for workload in others for group in groups]
    turns += [replace(turn, measured="largest batches") for turn in turns if machine.kind != "cpu"]
    return [turn for turn in turns if _is_first(turn)]


def _is_first(turn: Turn) -> bool:
    """Whether this is the first process of the run that measures it."""
    ranks = turn.layout.ranks if turn.ranks else 1
    about = ["strategies", turn.measured, *turn.case.values(), ranks, *["other recipe"] * turn.other]
    return shared_decisions.first("-".join(map(str, about)))


def _examined(spec: Spec, machine: Machine) -> tuple[list[Workload], list[Workload], list[Record]]:
    """The workloads as they are trained, the same by other recipes, and records of what cannot be.

    All but the first node look at nothing, and are told later.
    """
    progress.doing(f"looking for learning rates of {', '.join(spec.workloads)}")
    found = launch(_examine, spec, machine.num_devices * spec.nodes, layout=Layout(1), machine=machine)
    if not found:
        others = [
            replace(own, recipe=other)
            for own in spec.loads
            for other in own.recipe.others(spec.precision, spec.checkpointing)
        ]
        return spec.loads, others, []  # as many turns as the first node has, and so the same parts of the time
    workloads, others, absent = found[0]
    problems = [record.note for record in absent if record.status == "failed" and record.metric == "step_time"]
    if problems and spec.nodes > 1:
        raise ValueError("\n".join(problems))
    return workloads, others, absent


def _examine(ctx: RankContext, spec: Spec, num_devices: int) -> tuple[list[Workload], list[Workload], list[Record]]:
    found, others, absent = list[Workload](), list[Workload](), list[Record]()
    failed = partial(Record.failed, reason=Reason.ERROR, metric="step_time")
    for workload in spec.loads:
        try:
            workload = examined(workload, ctx.device, spec.check_steps, num_devices)
            found.append(replace(workload, varies=varies(workload)))
        except NotAWorkload as error:
            absent.append(failed({"workload": workload.name}, str(error)))
            continue
        if not found[-1].varies and shared_decisions.first(f"operations-{workload.name}"):
            absent.append(_model_operations(found[-1]))
        possible, impossible = _other_recipes(found[-1], ctx.device, spec)
        others += possible
        absent += impossible
    return found, others, absent


def _other_recipes(workload: Workload, device: torch.device, spec: Spec) -> tuple[list[Workload], list[Record]]:
    """Those that can be, and a record of each other; whatever a file of the user's raises costs these alone."""
    possible, impossible, metric = list[Workload](), list[Record](), OTHER_RECIPE["step_time"]
    try:
        for other, why_not in by_other_recipes(workload, device, spec.precision, spec.checkpointing):
            case: Case = {"workload": other.name, **other.recipe_axes}
            if why_not:
                impossible.append(Record.skipped(case, why_not, metric=metric))
            else:
                possible.append(other)
    except Exception as error:
        own: Case = {"workload": workload.name}
        impossible.append(Record.failed(own, in_one_line(error), reason=Reason.ERROR, metric=metric))
    return possible, impossible


def _launched(spec: Spec, machine: Machine, turn: Turn) -> list[Record]:
    """Stages alone, which are many, are for the run's first process."""
    metric, unit = METRICS[turn.measured]
    return launch_and_record(
        *(_rank, spec, machine, turn, not turn.other and _is_first(turn)),
        layout=turn.layout if turn.ranks else Layout(1),
        machine=machine,
        devices_each=1 if turn.ranks else turn.layout.ranks,
        cases=[(turn.case, metric)],
        unit=unit,
    )


def _rank(ctx: RankContext, spec: Spec, machine: Machine, turn: Turn, first: bool) -> Iterator[Record]:
    """By one of several ranks, or by a process that has all devices."""
    opened = nullcontext(list[Device]()) if turn.ranks else open_devices(machine, turn.layout.ranks)
    with opened as devices, empty_cache_of_code(ctx) if turn.workload.recipe.compile else nullcontext():
        every = builders.on_ranks(ctx) if turn.ranks else builders.in_process(devices, stages=first)
        strategies = [one for one in every if not (turn.other and one.is_part)]  # parts explain the usual step's time
        group, found = _group(ctx, devices or [ctx], spec, turn), list[Record]()
        measured = {
            "times": partial(group.times, strategies),
            "largest batches": partial(group.largest_batches, strategies),
            "checkpoints": partial(checkpoint_cost.records, group, spec.data_dir),
        }
        for record in measured[turn.measured]():
            found.append(record)
            yield record
        if first and not turn.ranks:
            yield from played(found, turn.workload.recipe)


def _model_operations(workload: Workload) -> Record:
    """Of training on one sample, counted without data: what the model needs, however kernels compute it."""
    case: Case = {"workload": workload.name, "unit": workload.unit, "units": workload.units(1)}
    try:
        needed = flops(workload.without_data()[1])
    except Exception as error:  # whatever a user's model does with values that it does not have
        return Record.skipped(case, in_one_line(error), metric="model_operations", unit="FLOP")
    return Record(case=case, metric="model_operations", unit="FLOP", samples=[[needed]])


def _group(ctx: RankContext, devices: Sequence[Synchronised], spec: Spec, turn: Turn) -> Group:
    """With the workload as the first node examined it, whose ranks need not come first."""
    everywhere: list[Workload] = ctx.all_gather(turn.workload)
    workload = replace(max(everywhere, key=lambda one: one.lr), each=turn.workload.batch_size)
    scalings = spec.scaling if turn.layout.ranks > 1 else spec.scaling[:1]  # on one device both are the same
    if turn.measured == "checkpoints" and turn.layout.ranks > 1:
        scalings = ("weak",)
    return Group(
        ctx,
        devices,
        References(ctx.device, spec.check_steps),
        workload,
        {**turn.case, **workload.recipe_axes},
        scalings[-1:] if turn.other else scalings,
        spec.measure,
        spec.micro_batches,
        trace=spec.trace and not turn.other,
        by_kind=turn.measured == "times" and not turn.other,
    )
