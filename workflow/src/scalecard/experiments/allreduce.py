"""How fast can devices add up their gradients, and what does a good algorithm bring?

From scratch between the devices of one process, naive and on a ring, against torch.distributed (NCCL, or gloo) with
one process per device. Sizes are bytes per device; bus bandwidth is nccl-tests' 2 (n - 1)/n * size / time.

The answer would be wrong if a device were still reading when the clock stops (every device is waited for, and a sample
is the slowest rank's), if the sum were wrong (the very call that is timed first adds whole numbers, which are
compared one by one), or if only a part were sent (the bytes that devices receive are counted).
"""

from collections.abc import Iterator, Mapping, Sequence
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
from scalecard.measuring.interleaved_timing import round_records
from scalecard.measuring.more_ranks import Proofs, proven_on_more_ranks, with_proofs
from scalecard.measuring.prepare import guarded, proofs, too_few_devices
from scalecard.measuring.proof import fill, number, same_as, total
from scalecard.measuring.spec import ByteSizes, Common, Positive
from scalecard.measuring.stopping_rule import COARSE, coarse_to_fine, in_equal_parts, part_of_budget
from scalecard.measuring.timer import Synchronised
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
    for algorithm in (*ALGORITHMS, "torch.distributed"):
        yield from too_few_devices({"algorithm": algorithm, "devices": 2}, machine)
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
        timed = partial(_from_scratch, spec, devices)
        textbook: Case = {"devices": 2, "bytes": 8, "textbook": True}
        yield from guarded(timed(Setting(2, 8), {"textbook": True}), textbook)
        wanted = [Setting(count, size) for size in coarse_to_fine(spec.bytes) for count in counts]
        for at in in_equal_parts(wanted, label=lambda at: f"from scratch, {at.devices} devices, {at.bytes} bytes"):
            case: Case = {"algorithm": "from scratch", "devices": at.devices, "bytes": at.bytes}
            yield from guarded(timed(at, {}), case)
    empty_cache()


def _from_scratch(spec: Spec, devices: Sequence[Device], at: Setting, more: Case) -> Iterator[Record]:
    """Both algorithms; also proven on three and four devices, with a number of values that they do not divide."""
    variants = [
        Variant(
            name=name,
            case={"algorithm": name, "devices": at.devices, "bytes": at.bytes, **more},
            build=partial(_subject, name, devices),
            proven_at=[Setting(count, UNEVEN) for count in range(2, min(4, len(devices)) + 1)],
            timed_at=at,
        )
        for name in ALGORITHMS
    ]
    return round_records(variants, devices=devices[: at.devices], rule=spec.measure)


def _subject(algorithm: str, devices: Sequence[Device], at: Setting) -> Subject:
    """One bucket per device."""
    used = devices[: at.devices]
    buckets = [torch.zeros(at.bytes // 4, device=device.torch) for device in used]
    received, busiest = bytes_received(algorithm, at.devices, at.bytes // 4)
    work = partial(ALGORITHMS[algorithm], used, [[bucket] for bucket in buckets])
    prove = partial(_sums, work, used, dict(enumerate(buckets)), at.devices, "devices")
    expected = {"received bytes": received, "received by the busiest device": busiest}
    return Subject(work=work, prove=prove, expected=expected)


def _sums(
    work: Work, devices: Sequence[Synchronised], buckets: Mapping[int, Tensor], count: int, kind: str
) -> Iterator[Check]:
    """The call that is timed, on different whole numbers each time; each bucket of ours compared with the sum of all.

    Afterwards they are zeros, which stay finite however often they are added.
    """
    for turn in range(TURNS):
        ranks = range(turn * count, (turn + 1) * count)
        for rank, bucket in buckets.items():
            fill(bucket, partial(number, rank=ranks[rank]))
        work()
        for device in devices:
            device.synchronize()
        name = f"sum on each of {count} {kind}, element by element"
        yield from (same_as(name, bucket, partial(total, ranks=ranks)) for bucket in buckets.values())
    for bucket in buckets.values():
        bucket.zero_()


def _prove(ctx: RankContext, spec: Spec) -> Proofs:
    return proofs([replace(_library(ctx, {}, UNEVEN), proven_at=[UNEVEN])], ctx)


def _rank(ctx: RankContext, spec: Spec, proven: Proofs) -> Iterator[Record]:
    sizes, library = coarse_to_fine(spec.bytes), f"torch.distributed, {ctx.layout}"
    for size in in_equal_parts(sizes, label=lambda size: f"{library}, {size} bytes", headline=COARSE):
        case = _case(ctx.layout, size, dist.get_backend())
        variants = with_proofs([_library(ctx, case, size)], proven)
        yield from guarded(round_records(variants, devices=[ctx], rule=spec.measure, ranks=ctx), case)


def _case(layout: Layout, size: int, backend: str) -> Case:
    return {"algorithm": "torch.distributed", **layout.case, "bytes": size, "backend": backend}


def _library(ctx: RankContext, case: Case, size: int) -> Variant:
    return Variant(name="all_reduce", case=case, build=partial(_on_ranks, ctx), timed_at=size)


def _on_ranks(ctx: RankContext, size: int) -> Subject:
    """This rank's bucket, and what every rank puts into its own."""
    bucket = torch.zeros(size // 4, device=ctx.device)
    work = partial(dist.all_reduce, bucket)
    prove = partial(_sums, work, [ctx], {ctx.rank: bucket}, ctx.world_size, "ranks")
    expected = {"all-reduces": 1, "all-reduced bytes": size}
    return Subject(work=work, prove=prove, expected=expected, agreeing=lambda: [bucket])
