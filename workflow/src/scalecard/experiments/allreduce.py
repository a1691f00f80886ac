"""How fast can devices add up their gradients, and what does a good algorithm bring?

From scratch between the devices of one process, naive and on a ring, against torch.distributed (NCCL, or gloo) with
one process per device. Sizes are bytes per device; bus bandwidth is nccl-tests' 2 (n - 1)/n * size / time.

The answer would be wrong if a device were still reading when the clock stops (every device is waited for, and a sample
is the slowest rank's), if the sum were wrong (the very call that is timed first adds whole numbers, which are
compared one by one), or if only a part were sent (the bytes that devices receive are counted).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from scalecard.distributed import Layout, layouts, nodes
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch_and_record
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.failures import empty_cache
from scalecard.hardware.machine import Machine, device_counts, provable
from scalecard.measuring.case_variant import Subject, Variant, Work
from scalecard.measuring.interleaved_timing import time_rounds
from scalecard.measuring.more_ranks import Proofs, proven_on_more_ranks, with_proofs
from scalecard.measuring.prepare import guarded, proofs
from scalecard.measuring.proof import fill, number, same_as, total
from scalecard.measuring.spec import ByteSizes, Common, Positive
from scalecard.measuring.stopping_rule import COARSE, coarse_to_fine, in_equal_parts, part_of_budget
from scalecard.measuring.timer import Bench
from scalecard.parallel.scratch_allreduce import ALGORITHMS, bytes_received
from scalecard.records.axes import Case
from scalecard.records.record import Check, Record

UNEVEN = 4 * 1021  # bytes, of a number of values that no number of devices divides
TURNS = 3  # sums that are compared
LIBRARY_SHARE = 2 / 3  # of the time, if that is short: its rates are what others are judged by


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    nodes: Positive
    bytes: ByteSizes

    def __post_init__(self) -> None:
        for size in self.bytes:
            if size % 4:
                raise ValueError(f"bytes = {size}: must be a multiple of 4, the size of a float32")


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """The library's, on every layout of ranks; then the textbook's first case and our own, which do not span nodes."""
    if machine.num_devices == 1:
        for algorithm in (*ALGORITHMS, "torch.distributed"):
            yield Record.skipped({"algorithm": algorithm, "devices": 2}, "needs 2 devices, this machine has 1")
    wanted = [layout for layout in layouts(machine.num_devices, spec.nodes) if layout.ranks > 1]
    proven = proven_on_more_ranks(_prove, spec, timed=wanted, machine=machine)
    with part_of_budget(LIBRARY_SHARE):
        yield from _by_the_library(spec, machine, wanted, proven)
    if machine.num_devices > 1 and nodes.here().leads:
        yield from _within_one_process(spec, machine)


def _by_the_library(spec: Spec, machine: Machine, wanted: Sequence[Layout], proven: Proofs) -> Iterator[Record]:
    backend = dist.get_default_backend_for_device(machine.kind)
    for layout in in_equal_parts(coarse_to_fine(wanted), label=lambda one: f"torch.distributed, {one}", headline=1):
        cases = [(_case(layout, size, backend), "time") for size in coarse_to_fine(spec.bytes)]
        yield from launch_and_record(_rank, spec, proven, layout=layout, machine=machine, cases=cases)


@dataclass(frozen=True)
class Setting:
    """On how many devices of this process, and how many bytes each holds."""

    devices: int
    bytes: int


def _within_one_process(spec: Spec, machine: Machine) -> Iterator[Record]:
    counts = device_counts(machine.num_devices)[1:]
    with open_devices(machine, max(machine.num_devices, provable(machine))) as devices:
        textbook: Case = {"devices": 2, "bytes": 8, "textbook": True}
        yield from guarded(_from_scratch(spec, devices, Setting(2, 8), {"textbook": True}), textbook)
        wanted = [Setting(count, size) for size in coarse_to_fine(spec.bytes) for count in counts]
        for at in in_equal_parts(wanted, label=lambda at: f"from scratch, {at.devices} devices, {at.bytes} bytes"):
            case: Case = {"algorithm": "from scratch", "devices": at.devices, "bytes": at.bytes}
            yield from guarded(_from_scratch(spec, devices, at, {}), case)
    empty_cache()


def _from_scratch(spec: Spec, devices: Sequence[Device], at: Setting, more: Case) -> Iterator[Record]:
    """Both algorithms; also proven on three and four devices, with a number of values that they do not divide."""
    uneven = [Setting(count, UNEVEN) for count in range(2, min(4, len(devices)) + 1)]
    variants = []
    for name in ALGORITHMS:
        case: Case = {"algorithm": name, "devices": at.devices, "bytes": at.bytes, **more}
        build = partial(_subject, name, devices)
        variants.append(Variant(name=name, case=case, build=build, proven_at=uneven, timed_at=at))
    for timing in time_rounds(variants, devices=devices[: at.devices], rule=spec.measure):
        yield timing.record()


def _subject(algorithm: str, devices: Sequence[Device], at: Setting) -> Subject:
    """One bucket per device. Zeros stay finite however often they are added."""
    used = devices[: at.devices]
    buckets = [torch.zeros(at.bytes // 4, device=device.torch) for device in used]
    received, busiest = bytes_received(algorithm, at.devices, at.bytes // 4)
    work = partial(ALGORITHMS[algorithm], used, [[bucket] for bucket in buckets])
    expected = {"received bytes": received, "received by the busiest device": busiest}
    return Subject(work=work, prove=partial(_sums, work, used, buckets), expected=expected)


def _sums(work: Work, devices: Sequence[Device], buckets: list[Tensor]) -> Iterator[Check]:
    """The call that is timed, on different whole numbers each time, and every bucket compared with their sum."""
    for turn in range(TURNS):
        ranks = range(turn * len(buckets), (turn + 1) * len(buckets))
        for rank, bucket in zip(ranks, buckets, strict=True):
            fill(bucket, partial(number, rank=rank))
        work()
        for device in devices:
            device.synchronize()
        name = f"sum on each of {len(devices)} devices, element by element"
        yield from (same_as(name, bucket, partial(total, ranks=ranks)) for bucket in buckets)
    for bucket in buckets:
        bucket.zero_()


def _prove(ctx: RankContext, spec: Spec) -> Proofs:
    return proofs([replace(_library(ctx, {}, UNEVEN), proven_at=[UNEVEN])], Bench([ctx], ctx))


def _rank(ctx: RankContext, spec: Spec, proven: Proofs) -> Iterator[Record]:
    sizes, library = coarse_to_fine(spec.bytes), f"torch.distributed, {ctx.layout}"
    for size in in_equal_parts(sizes, label=lambda size: f"{library}, {size} bytes", headline=COARSE):
        case = _case(ctx.layout, size, dist.get_backend())
        variants = with_proofs([_library(ctx, case, size)], proven)
        yield from guarded(_time(ctx, spec, variants), case)


def _case(layout: Layout, size: int, backend: str) -> Case:
    return {"algorithm": "torch.distributed", **layout.case, "bytes": size, "backend": backend}


def _time(ctx: RankContext, spec: Spec, variants: Sequence[Variant]) -> Iterator[Record]:
    for timing in time_rounds(variants, devices=[ctx], rule=spec.measure, ranks=ctx):
        yield timing.record()


def _library(ctx: RankContext, case: Case, size: int) -> Variant:
    return Variant(name="all_reduce", case=case, build=partial(_on_ranks, ctx), timed_at=size)


def _on_ranks(ctx: RankContext, size: int) -> Subject:
    """This rank's bucket, and what every rank puts into its own."""
    bucket = torch.zeros(size // 4, device=ctx.device)
    work = partial(dist.all_reduce, bucket)

    def prove() -> Iterator[Check]:
        name = f"sum on each of {ctx.world_size} ranks, element by element"
        for turn in range(TURNS):
            ranks = range(turn * ctx.world_size, (turn + 1) * ctx.world_size)
            fill(bucket, partial(number, rank=ranks[ctx.rank]))
            work()
            ctx.synchronize()
            yield same_as(name, bucket, partial(total, ranks=ranks))
        bucket.zero_()

    expected = {"all-reduces": 1, "all-reduced bytes": size}
    return Subject(work=work, prove=prove, expected=expected, agreeing=lambda: [bucket])
