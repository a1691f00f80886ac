"""Is every part of this machine as fast as its like, and free of errors?

Each device multiplies matrices, uses its memory and exchanges data with the host, one after the other and then all at
once; each pair of devices copies, alone and while all others do; all devices work for a while, until heat shows; ranks
run the collectives of training. Hardware's error counters are read before and after.

The answer would be wrong if one device stood for all (each has records of its own), if a slow part hid behind others
that work at the same time (each takes its own device's time, and is also measured alone), or if what was timed did
nothing (each result is compared first). Without GPUs, CPU workers stand in for devices, and share one memory.
"""

import base64
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Len
from pydantic import Field

from scalecard import progress
from scalecard.distributed import nodes
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch_and_record
from scalecard.distributed.layout import Layout, layouts
from scalecard.hardware import error_counters, numa
from scalecard.hardware.devices import Device, empty_cache, host_device, near, open_devices
from scalecard.hardware.links import Link
from scalecard.hardware.machine import Machine
from scalecard.measuring.out_of_memory import guarded
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.rule import Rule
from scalecard.measuring.spec import MOST_BYTES, ByteSizes, Common, EachOnce, Positive
from scalecard.measuring.variant import Subject, Variant
from scalecard.parts import collectives, copies, errors, links, memory, products, storage, tournament
from scalecard.parts.products import Products
from scalecard.records.record import Case, Record


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    nodes: Positive
    rounds: Annotated[int, Field(ge=2, le=1000)]
    size: Positive
    products: Positive
    dtypes: Annotated[tuple[Literal["float32", "bfloat16"], ...], Len(min_length=1), EachOnce]
    memory_bytes: Annotated[int, Field(ge=4, le=MOST_BYTES)]
    link_bytes: ByteSizes
    collective_bytes: ByteSizes
    load_seconds: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)]

    def __post_init__(self) -> None:
        """Few rounds of everything in one process: a look at each part, not a precise figure of one."""
        few = replace(self.measure, min_rounds=self.rounds, max_rounds=self.rounds, min_seconds=0, processes=1)
        object.__setattr__(self, "measure", few)


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Every device and every pair within each node, then the collectives of all, and the nodes in pairs."""
    with errors.watched() as counters:
        with open_devices(machine) as devices:
            mine = [*_devices(spec, machine, devices), *_pairs(spec, devices), *_load(spec, devices)]
        empty_cache()
        mine += _host(spec)
        yield from _collectives(spec, machine)
        yield from _between_nodes(spec, machine)
        yield from _of_every_node([*mine, *counters()])


def _of_every_node(mine: list[Record]) -> Iterator[Record]:
    """On the first of several nodes the records of all, which say whose they are."""
    job = nodes.here()
    if job.count == 1:
        yield from mine
        return
    job.publish("health", base64.b64encode(pickle.dumps(mine)).decode())
    found = job.collect("health", within=nodes.JOIN) if job.leads else {}
    for node, theirs in found.items():
        for record in pickle.loads(base64.b64decode(theirs)):
            yield replace(record, case={**record.case, "node": node})


def _devices(spec: Spec, machine: Machine, devices: Sequence[Device]) -> Iterator[Record]:
    """Products, memory and the way to the host."""
    progress.doing(f"{progress.counted(len(devices), 'device')}: products, memory, copies from and to the host")
    for dtype in spec.dtypes:
        at = Products(spec.size, spec.products, dtype)
        if note := products.unsupported(dtype, machine, devices[0]):
            yield Record.skipped({"part": "compute", "dtype": dtype}, note)
            continue
        yield from _each(spec, devices, {"part": "compute", **asdict(at)}, partial(_products, spec, at))
    for access in memory.PASSES:
        case: Case = {"part": "memory", "access": access, "bytes": spec.memory_bytes}
        yield from _each(spec, devices, case, partial(memory.subject, spec.seed, access, spec.memory_bytes))
    if machine.emulated:
        yield Record.skipped({"part": "host link"}, "no GPU here: the memory of CPU workers is the host's")
        return
    for direction, size in product(("to device", "to host"), spec.link_bytes):
        case = {"part": "host link", "direction": direction, "memory": "pinned", "bytes": size}
        yield from _each(spec, devices, case, partial(_host_link, spec, direction, size))


def _each(spec: Spec, devices: Sequence[Device], case: Case, make: Callable[[Device], Subject]) -> Iterator[Record]:
    """The same work on every device: in turns, then on all at once."""
    for at_once in (False, True)[: len(devices)]:
        variants = [
            Variant(
                name=str(device),
                case={**case, "device": device.index, "at_once": at_once},
                build=partial(_made, make, device),
                place=device,
            )
            for device in devices
        ]
        yield from guarded(_timed(spec.measure, variants, devices, at_once=at_once), {**case, "at_once": at_once})


def _timed(
    rule: Rule, variants: Sequence[Variant], devices: Sequence[Device], *, at_once: bool = False
) -> Iterator[Record]:
    for timing in time_rounds(variants, devices=devices, rule=rule, at_once=at_once):
        yield timing.record()


def _made(make: Callable[[Device], Subject], device: Device, _at: None) -> Subject:
    return make(device)


def _products(spec: Spec, at: Products, device: Device) -> Subject:
    return products.subject(spec.seed, "concurrent", [device], at)


def _host_link(spec: Spec, direction: str, size: int, device: Device) -> Subject:
    """Copies from or to pinned memory of the NUMA node next to the GPU."""
    with near([device.index]):
        ends = (None, device) if direction == "to device" else (device, None)
        source = copies.filled(size, "pinned" if ends[0] is None else "device", ends[0], spec.seed)
        target = copies.empty(size, "pinned" if ends[1] is None else "device", ends[1])
    return copies.subject(device, source, target, wait=False)


def _pairs(spec: Spec, devices: Sequence[Device]) -> Iterator[Record]:
    """Every ordered pair of devices, in turns; then in each turn every device sends to one other."""
    if len(devices) == 1:
        yield Record.skipped({"part": "device link"}, "needs 2 devices, this machine has 1")
    turns = [[Link(devices[a], devices[b]) for a, b in turn] for turn in links.shifts(len(devices))]
    together = [(False, [link for turn in turns for link in turn]), *((True, turn) for turn in turns)]
    for size, (at_once, turn) in product(spec.link_bytes, together):
        progress.doing(f"{progress.counted(len(turn), 'pair')} of devices, {size} bytes{', all at once' * at_once}")
        case: Case = {"part": "device link", "bytes": size, "at_once": at_once}
        variants = [
            Variant(
                name=str(link),
                case={**case, "source": link.source.index, "target": link.target.index, "peer": link.peer},
                build=partial(_copying, spec, link, size),
                place=link,
            )
            for link in turn
        ]
        yield from guarded(_timed(spec.measure, variants, devices, at_once=at_once), case)


def _copying(spec: Spec, link: Link, size: int, _at: None) -> Subject:
    return links.subject(link, spec.seed, size)


def _load(spec: Spec, devices: Sequence[Device]) -> Iterator[Record]:
    """All devices multiply matrices until heat would show; the samples are in the order in which they were taken."""
    progress.doing(f"a load of {spec.load_seconds:g} s on all devices")
    seconds = spec.load_seconds
    each = max(1e-3, seconds / len(devices))
    rule = replace(spec.measure, block_seconds=0.1, max_rounds=100_000, min_seconds=seconds, max_seconds=each)
    at = Products(spec.size, spec.products, spec.dtypes[-1])
    variants = [
        Variant(
            name=str(device),
            case={"part": "load", "device": device.index, **asdict(at)},
            build=partial(_made, partial(_products, spec, at), device),
            place=device,
        )
        for device in devices
    ]
    yield from guarded(_timed(rule, variants, devices, at_once=True), {"part": "load"})


def _host(spec: Spec) -> Iterator[Record]:
    """The memory of each NUMA node, what the training images come from, and the ports of the network."""
    size = spec.memory_bytes
    for node, cores in numa.nodes().items() or [(None, sorted(os.sched_getaffinity(0)))]:
        with numa.on(cores), host_device(len(cores)) as host:
            build = partial(_made, partial(memory.subject, spec.seed, "copy", size), host)
            case: Case = {"part": "host memory", "numa_node": node, "bytes": size}
            yield from _timed(spec.measure, [Variant(name=f"NUMA node {node}", case=case, build=build)], [host])
    case = {"part": "storage", "bytes": size}
    try:
        with storage.file_of(Path(spec.data_dir), size) as (path, checksum):
            build = partial(_reading, path, checksum)
            yield from _timed(spec.measure, [Variant(name="storage", case=case, build=build)], [])
    except OSError as error:
        yield Record.skipped(case, f"no file of this size can be written to data_dir: {error.strerror}")
    for name, rate in error_counters.link_rates().items():
        yield Record(case={"part": "adapter", "adapter": name}, metric="rate", unit="B/s", samples=[[rate]])


def _reading(path: Path, checksum: int, _at: None) -> Subject:
    return storage.subject(path, checksum)


def _collectives(spec: Spec, machine: Machine) -> Iterator[Record]:
    wanted = [layout for layout in layouts(machine.num_devices, spec.nodes) if layout.ranks > 1]
    if not wanted:
        yield Record.skipped({"part": "collective"}, "needs 2 devices, this machine has 1")
    for layout in progress.cases(wanted, label=lambda layout: f"collectives on {layout}"):
        cases = [_case(layout, name, size, machine) for name, size in _sweep(spec)]
        yield from launch_and_record(_rank, spec, machine, layout=layout, machine=machine, cases=cases, metric="time")


def _sweep(spec: Spec) -> list[tuple[str, int]]:
    return list(product(collectives.COLLECTIVES, spec.collective_bytes))


def _case(layout: Layout, collective: str, size: int, machine: Machine) -> Case:
    backend = "gloo" if machine.emulated else "nccl"
    return {"part": "collective", "collective": collective, **layout.case, "bytes": size, "backend": backend}


def _rank(ctx: RankContext, spec: Spec, machine: Machine) -> list[Record]:
    records: list[Record] = []
    for name, size in _sweep(spec):
        case = _case(ctx.layout, name, size, machine)
        variant = Variant(name=name, case=case, build=partial(_on_ranks, ctx, name, size))
        records += guarded(_on_all(ctx, spec, variant), case)
    return records


def _on_ranks(ctx: RankContext, name: str, size: int, _at: None) -> Subject:
    return collectives.subject(ctx, name, size)


def _on_all(ctx: RankContext, spec: Spec, variant: Variant) -> Iterator[Record]:
    for timing in time_rounds([variant], devices=[ctx], rule=spec.measure, ranks=ctx):
        yield timing.record()


def _between_nodes(spec: Spec, machine: Machine) -> Iterator[Record]:
    """All-reduces within every node and between every two, on all devices."""
    if spec.nodes == 1:
        return
    layout = Layout(machine.num_devices * spec.nodes, spec.nodes)
    sizes = [max(spec.collective_bytes)]
    progress.doing(f"every node, then every pair of {spec.nodes} nodes")
    cases: list[Case] = [{"part": "node", "bytes": size} for size in sizes]
    work = (tournament.records, spec.measure, sizes)
    yield from launch_and_record(*work, layout=layout, machine=machine, cases=cases, metric="time")
