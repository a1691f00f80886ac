"""How fast can devices add up their gradients, and what does a good algorithm bring?

From scratch between the devices of one process, naive and on a ring, against torch.distributed (NCCL, or gloo) with
one process per device. Sizes are bytes per device; bus bandwidth is nccl-tests' 2 (n - 1)/n * size / time.

The answer would be wrong if a device were still reading when the clock stops (every device is waited for, and a sample
is the slowest rank's), if the sum were wrong (the very call that is timed first adds whole numbers, which are
compared one by one), or if only a part were sent (the bytes that devices receive are counted).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from scalecard import progress
from scalecard.distributed import nodes
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch_and_record
from scalecard.distributed.layout import Layout, layouts
from scalecard.hardware.devices import Device, device_counts, empty_cache, open_devices, provable
from scalecard.hardware.machine import Machine
from scalecard.measuring.out_of_memory import guarded
from scalecard.measuring.proof import same_values
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.spec import Common, Positive, Sweep
from scalecard.measuring.variant import Subject, Variant, Work
from scalecard.records.record import Case, Check, Record
from scalecard.training.scratch_allreduce import ALGORITHMS, bytes_received


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    nodes: Positive
    bytes: Sweep

    def __post_init__(self) -> None:
        for size in self.bytes:
            if size % 4:
                raise ValueError(f"bytes = {size}: must be a multiple of 4, the size of a float32")


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """The textbook's first case, then every algorithm, number of devices and size; over nodes, only the library's."""
    if machine.num_devices == 1:
        for algorithm in (*ALGORITHMS, "torch.distributed"):
            yield Record.skipped({"algorithm": algorithm, "devices": 2}, "needs 2 devices, this machine has 1")
    elif nodes.here().leads:
        yield from _within_one_process(spec, machine)
    wanted = [layout for layout in layouts(machine.num_devices, spec.nodes) if layout.ranks > 1]
    for layout in progress.cases(wanted, label=lambda layout: f"torch.distributed, {layout}"):
        backend = "nccl" if machine.kind == "cuda" else "gloo"
        cases = [_case(layout, size, backend) for size in spec.bytes]
        yield from launch_and_record(_rank, spec, layout=layout, machine=machine, cases=cases, metric="time")


@dataclass(frozen=True)
class Setting:
    """On how many devices of this process, and how many bytes each holds."""

    devices: int
    bytes: int


def _within_one_process(spec: Spec, machine: Machine) -> Iterator[Record]:
    """From scratch, between the devices of this process."""
    counts = [n for n in device_counts(machine.num_devices) if n > 1]
    with open_devices(machine, max(machine.num_devices, provable(machine))) as devices:
        textbook: Case = {"textbook": True}
        yield from _from_scratch(spec, devices, Setting(2, 8), textbook)
        wanted = [Setting(count, size) for count in counts for size in spec.bytes]
        for at in progress.cases(wanted, label=lambda at: f"from scratch, {at.devices} devices, {at.bytes} bytes"):
            case: Case = {"algorithm": "from scratch", "devices": at.devices, "bytes": at.bytes}
            yield from guarded(_from_scratch(spec, devices, at, {}), case)
    empty_cache()


def _from_scratch(spec: Spec, devices: Sequence[Device], at: Setting, more: Case) -> Iterator[Record]:
    """Both algorithms; also proven on three and four devices, with a number of values that they do not divide."""
    uneven = [Setting(count, 4 * 1021) for count in range(2, min(4, len(devices)) + 1)]
    variants = [
        Variant(
            name=name,
            case={"algorithm": name, "devices": at.devices, "bytes": at.bytes, **more},
            build=partial(_subject, spec.seed, name, devices),
            proven_at=uneven,
            timed_at=at,
        )
        for name in ALGORITHMS
    ]
    for timing in time_rounds(variants, devices=devices[: at.devices], rule=spec.measure):
        yield timing.record()


def _subject(seed: int, algorithm: str, devices: Sequence[Device], at: Setting) -> Subject:
    """One bucket per device. Zeros stay finite however often they are added."""
    used = devices[: at.devices]
    buckets = [torch.zeros(at.bytes // 4, device=device.torch) for device in used]
    total, busiest = bytes_received(algorithm, at.devices, at.bytes // 4)
    return Subject(
        work=(work := partial(ALGORITHMS[algorithm], used, [[bucket] for bucket in buckets])),
        prove=partial(_sums, work, used, buckets, partial(_integers, at.bytes, seed), str(at.devices) + " devices"),
        expected={"received bytes": total, "received by the busiest device": busiest},
        state=lambda: buckets,
    )


def _sums(
    work: Work, devices: Sequence[Device], buckets: list[Tensor], values: Callable[[int], Tensor], where: str
) -> Iterator[Check]:
    """The call that is timed, on different whole numbers each time, and every bucket compared with their sum."""
    for turn in range(_turns(buckets[0].nbytes)):
        mine = [values(turn * len(buckets) + index) for index in range(len(buckets))]
        for bucket, value in zip(buckets, mine, strict=True):
            bucket.copy_(value)
        work()
        for device in devices:
            device.synchronize()
        total = torch.stack(mine).sum(0)
        for bucket in buckets:
            yield same_values(f"sum on each of {where}, element by element", bucket, total)


def _turns(size: int) -> int:
    """Three; for large buckets, whose numbers take the host seconds to draw, one."""
    return 3 if size <= 2**20 else 1


def _integers(size: int, seed: int, number: int) -> Tensor:
    """Whole numbers below 1000: their sum is exact in float32 in any order."""
    generator = torch.Generator().manual_seed(seed + number)
    return torch.randint(0, 1000, (size // 4,), generator=generator).float()


def _rank(ctx: RankContext, spec: Spec) -> list[Record]:
    """torch.distributed's all-reduce, every size."""
    records: list[Record] = []
    for size in progress.cases(spec.bytes, label=lambda s: f"torch.distributed, {ctx.layout}, {s} bytes"):
        case = _case(ctx.layout, size, dist.get_backend())
        records += guarded(_library(ctx, spec, case, size), case)
    return records


def _case(layout: Layout, size: int, backend: str) -> Case:
    return {"algorithm": "torch.distributed", **layout.case, "bytes": size, "backend": backend}


def _library(ctx: RankContext, spec: Spec, case: Case, size: int) -> Iterator[Record]:
    variant = Variant(name="all_reduce", case=case, build=partial(_on_ranks, ctx, spec.seed), timed_at=size)
    for timing in time_rounds([variant], devices=[ctx], rule=spec.measure, ranks=ctx):
        yield timing.record()


def _on_ranks(ctx: RankContext, seed: int, size: int) -> Subject:
    """This rank's bucket, and what every rank puts into its own."""
    bucket = torch.zeros(size // 4, device=ctx.device)
    work = partial(dist.all_reduce, bucket)

    def prove() -> Iterator[Check]:
        for turn in range(_turns(size)):
            values = [_integers(size, seed, turn * ctx.world_size + rank) for rank in range(ctx.world_size)]
            bucket.copy_(values[ctx.rank])
            work()
            ctx.synchronize()
            yield same_values("sum on every rank, element by element", bucket, torch.stack(values).sum(0))

    return Subject(
        work=work,
        prove=prove,
        expected={"all-reduces": 1, "all-reduced bytes": size},
        state=lambda: [bucket],
        agreeing=lambda: [bucket],
    )
