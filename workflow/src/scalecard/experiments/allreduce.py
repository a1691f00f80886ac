"""How fast can devices add up their gradients, and what does a good algorithm bring?

From scratch between the devices of one process, naive and on a ring, against torch.distributed (NCCL, or gloo) with
one process per device. Sizes are bytes per device; bus bandwidth is nccl-tests' 2 (n - 1)/n * size / time.

The answer would be wrong if a device were still reading when the clock stops (every device is waited for, and a sample
is the slowest rank's), or if the sum were wrong (first, whole numbers are added and compared one by one).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from scalecard import progress
from scalecard.distributed import nodes
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch_and_record
from scalecard.distributed.layout import layouts
from scalecard.hardware.devices import Device, device_counts, empty_cache, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.out_of_memory import guarded
from scalecard.measuring.proof import same_values
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.spec import Common, Positive, Sweep
from scalecard.measuring.variant import Variant
from scalecard.records.record import Case, Check, Record
from scalecard.training.scratch_allreduce import ALGORITHMS, AllReduce


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
        lost: Case = {"algorithm": "torch.distributed"}
        yield from launch_and_record(_rank, spec, layout=layout, machine=machine, case=lost, metric="time")


def _within_one_process(spec: Spec, machine: Machine) -> Iterator[Record]:
    """From scratch, between the devices of this process."""
    counts = [n for n in device_counts(machine.num_devices) if n > 1]
    with open_devices(machine) as devices:
        yield from _textbook(spec, devices[:2])
        wanted = [(count, size) for count in counts for size in spec.bytes]
        for count, size in progress.cases(wanted, label=lambda c: f"from scratch, {c[0]} devices, {c[1]} bytes"):
            at: Case = {"algorithm": "from scratch", "devices": count, "bytes": size}
            yield from guarded(_from_scratch(spec, devices[:count], size), at)
    empty_cache()


def _textbook(spec: Spec, devices: Sequence[Device]) -> Iterator[Record]:
    """[1, 1] and [2, 2] give [3, 3] on both devices."""
    for name, all_reduce in ALGORITHMS.items():
        values = [torch.full((2,), float(i + 1), device=d.torch) for i, d in enumerate(devices)]
        _reduce(all_reduce, devices, values)
        checks = [same_values("[1, 1] + [2, 2] = [3, 3]", value, torch.tensor([3.0, 3.0])) for value in values]
        case: Case = {"algorithm": name, "devices": 2, "bytes": 8, "textbook": True}
        work = partial(all_reduce, devices, _zeros(8, devices))
        yield from _time([Variant(name=name, case=case, work=work, checks=checks)], spec, devices)


def _from_scratch(spec: Spec, devices: Sequence[Device], size: int) -> Iterator[Record]:
    variants, buckets = [], _zeros(size, devices)
    for name, all_reduce in ALGORITHMS.items():
        checks = _checks(all_reduce, devices, size, spec.seed)
        case: Case = {"algorithm": name, "devices": len(devices), "bytes": size}
        work = partial(all_reduce, devices, buckets)
        variants.append(Variant(name=name, case=case, work=work, checks=checks))
    yield from _time(variants, spec, devices)


def _zeros(size: int, devices: Sequence[Device]) -> list[list[Tensor]]:
    """One bucket of `size` bytes per device; zeros stay finite however often they are added."""
    return [[torch.zeros(size // 4, device=device.torch)] for device in devices]


def _time(variants: Sequence[Variant], spec: Spec, devices: Sequence[Device]) -> Iterator[Record]:
    for timing in time_rounds(variants, devices=devices, rule=spec.measure):
        yield timing.record()


def _checks(all_reduce: AllReduce, devices: Sequence[Device], size: int, seed: int) -> list[Check]:
    values = [_integers(size, seed, rank=d.index) for d in devices]
    total = torch.stack(values).sum(0)
    ours = [value.to(d.torch, copy=True) for value, d in zip(values, devices, strict=True)]
    _reduce(all_reduce, devices, ours)
    return [same_values(f"sum on device {d.index}", value, total) for d, value in zip(devices, ours, strict=True)]


def _reduce(all_reduce: AllReduce, devices: Sequence[Device], values: list[Tensor]) -> None:
    all_reduce(devices, [[value] for value in values])
    for device in devices:
        device.synchronize()


def _integers(size: int, seed: int, *, rank: int) -> Tensor:
    """Whole numbers below 1000: their sum is exact in float32 in any order."""
    generator = torch.Generator().manual_seed(seed + rank)
    return torch.randint(0, 1000, (size // 4,), generator=generator).float()


def _rank(ctx: RankContext, spec: Spec) -> list[Record]:
    """torch.distributed's all-reduce, every size."""
    records: list[Record] = []
    for size in progress.cases(spec.bytes, label=lambda s: f"torch.distributed, {ctx.layout}, {s} bytes"):
        case: Case = {"algorithm": "torch.distributed", **ctx.layout.case, "bytes": size}
        case["backend"] = dist.get_backend()
        records += guarded(_library(ctx, spec, case, size), case)
    return records


def _library(ctx: RankContext, spec: Spec, case: Case, size: int) -> Iterator[Record]:
    values = [_integers(size, spec.seed, rank=rank) for rank in range(ctx.world_size)]
    mine = values[ctx.rank].to(ctx.device, copy=True)
    dist.all_reduce(mine)
    check = same_values("sum on every rank", mine, torch.stack(values).sum(0))
    zeros = torch.zeros(size // 4, device=ctx.device)
    variant = Variant(name="all_reduce", case=case, work=partial(dist.all_reduce, zeros), checks=[check])
    for timing in time_rounds([variant], devices=[ctx], rule=spec.measure, ranks=ctx):
        yield timing.record()
