"""Which way to split a model over devices is the fastest, which needs the least memory, and which cannot be used?

Each workload of config.yaml, ours or the user's, is trained by every strategy on 1, 2, 4 ... N devices, with the batch
of one device shared by all (strong scaling) and with as many samples on each (weak scaling). What cannot be done is a
record with its reason.

The answer would be wrong if a strategy trained something else (each is compared with a plain loop, in float64 without
dropout and with batch normalisation in eval mode, and as timed), if it did less (updates and forward passes are
counted, and operations and bytes where there is a closed form), or if strategies were timed at different times (those
of one process take turns on as many devices, and so do those of ranks).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

import torch
from annotated_types import Len
from pydantic import Field

from scalecard import progress
from scalecard.benchmarks.training import multi_process, single_process
from scalecard.benchmarks.training.reference_cache import References
from scalecard.benchmarks.training.run_group import Group
from scalecard.benchmarks.training.simulated_pipelines import schedules_played as played
from scalecard.benchmarks.training.strategy import StrategyBuilder
from scalecard.benchmarks.training.validate import NotAWorkload, OfWorkloads, Workloads, examined
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch, launch_and_record
from scalecard.distributed.layout import Layout, layouts
from scalecard.hardware.devices import open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring import shared_decisions
from scalecard.measuring.spec import Common, EachOnce, Positive
from scalecard.measuring.stopping_rule import in_equal_parts
from scalecard.measuring.timer import Synchronised
from scalecard.records.axes import Case
from scalecard.records.record import Reason, Record
from scalecard.workloads.workload import Workload

NO_PEAK = "CPU workers and ranks share the host's memory: there is no peak per device"
NO_LIMIT = "CPU workers and ranks share the host's memory: no batch is the largest that a device holds"
Measure = Callable[[Group, Iterable[StrategyBuilder]], Iterator[Record]]  # a method of Group


@dataclass(frozen=True, kw_only=True)
class Spec(OfWorkloads, Common):
    nodes: Positive
    workloads: Workloads
    scaling: Annotated[tuple[Literal["strong", "weak"], ...], Len(min_length=1), EachOnce]
    micro_batches: Annotated[int, Field(ge=2, le=1000)]
    check_steps: Positive
    trace: bool


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Every workload on one device, then on several of one process, then on several ranks.

    A workload that turns out not to be trainable is a failed record; over several nodes, which are not told of it, that
    is a ValueError before anything is measured.
    """
    spec = replace(spec, trace=spec.trace and shared_decisions.first("traces"))
    workloads, failed = _examined(spec, machine)
    yield from failed
    for workload in in_equal_parts(workloads):
        yield from _of_workload(spec, machine, workload)


def _of_workload(spec: Spec, machine: Machine, workload: Workload) -> Iterator[Record]:
    if machine.kind == "cpu":
        yield Record.skipped({"workload": workload.name}, NO_PEAK, metric="peak_memory", unit="B")
        yield Record.skipped({"workload": workload.name}, NO_LIMIT, metric="largest_batch", unit="samples")
    wanted = layouts(machine.num_devices, spec.nodes)
    for layout in progress.cases(wanted, label=lambda layout: f"{workload.name}, {layout}"):
        if layout.nodes == 1:
            yield from _launched(_in_process, spec, machine, workload, Layout(1), devices=layout.ranks)
        if layout.ranks > 1:
            yield from _launched(_on_ranks, spec, machine, workload, layout, devices=layout.ranks)
    if machine.num_devices == 1:
        two: Case = {"workload": workload.name, "devices": 2}
        yield Record.skipped(two, "needs 2 devices, this machine has 1", metric="step_time")


def _examined(spec: Spec, machine: Machine) -> tuple[list[Workload], list[Record]]:
    """The workloads as they are trained, and a record of each that cannot be; all but the first node look at nothing.

    Those are told later.
    """
    found = launch(_examine, spec, machine.num_devices * spec.nodes, layout=Layout(1), machine=machine)
    if not found:
        return spec.loads, []
    workloads, problems = found[0]
    if problems and spec.nodes > 1:
        raise ValueError("\n".join(problems.values()))
    failed = partial(Record.failed, reason=Reason.ERROR, metric="step_time")
    return workloads, [failed({"workload": name}, why) for name, why in problems.items()]


def _examine(ctx: RankContext, spec: Spec, num_devices: int) -> tuple[list[Workload], dict[str, str]]:
    found, failed = list[Workload](), dict[str, str]()
    for workload in spec.loads:
        try:
            found.append(examined(workload, ctx.device, spec.check_steps, num_devices))
        except NotAWorkload as error:
            failed[workload.name] = str(error)
    return found, failed


def _launched(
    work: Any, spec: Spec, machine: Machine, workload: Workload, layout: Layout, *, devices: int
) -> Iterator[Record]:
    """Times, then the largest batches, so that a rank that is lost then costs no times.

    Each in processes of their own, so that the devices' memory is free afterwards. Stages alone, which are many, and
    the largest batches are for the run's first process.
    """
    case: Case = {"workload": workload.name, **replace(layout, ranks=devices).case}
    each = 1 if layout.ranks > 1 else devices
    launched = partial(launch_and_record, layout=layout, machine=machine, cases=[case], devices_each=each)
    first = shared_decisions.first("-".join(map(str, ["strategies", *case.values(), layout.ranks])))
    yield from launched(work, spec, machine, workload, case, first, Group.times, metric="step_time")
    if machine.kind != "cpu" and first:
        found = Group.largest_batches
        yield from launched(work, spec, machine, workload, case, first, found, metric="largest_batch", unit="samples")


def _in_process(
    ctx: RankContext, spec: Spec, machine: Machine, workload: Workload, case: Case, first: bool, measure: Measure
) -> Iterator[Record]:
    with open_devices(machine, int(str(case["devices"]))) as devices:
        group = _group(ctx, devices, devices[0].torch, spec, workload, case)
        found = list[Record]()
        for record in measure(group, single_process.strategies(devices, stages=first)):
            found.append(record)
            yield record
        if first:
            yield from played(found)


def _on_ranks(
    ctx: RankContext, spec: Spec, machine: Machine, workload: Workload, case: Case, _first: bool, measure: Measure
) -> Iterator[Record]:
    group = _group(ctx, [ctx], ctx.device, spec, workload, case)
    yield from measure(group, multi_process.strategies(ctx))


def _group(
    ctx: RankContext, devices: Sequence[Synchronised], device: torch.device, spec: Spec, workload: Workload, case: Case
) -> Group:
    """With the workload as the first node examined it, whose ranks need not come first."""
    everywhere: list[Workload] = ctx.all_gather(workload)
    workload = replace(max(everywhere, key=lambda one: one.lr), each=workload.batch_size)
    scalings = spec.scaling if case["devices"] != 1 else spec.scaling[:1]  # on one device both are the same
    references = References(device, spec.check_steps)
    return Group(ctx, devices, references, workload, case, scalings, spec.measure, spec.micro_batches, spec.trace)
