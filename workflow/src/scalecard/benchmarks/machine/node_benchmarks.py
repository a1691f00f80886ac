"""Every part of one node, in turns and all at once: devices, their ways to the host and to each other, a load on all of
them, the host's memory and its storage. The counters of errors are read before and after."""

import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from scalecard import progress
from scalecard.benchmarks.machine import copies, matmul
from scalecard.benchmarks.machine.matmul import Products
from scalecard.hardware import host, vendors
from scalecard.hardware.devices import CpuDevice, Device, near, open_devices
from scalecard.hardware.facts import Missing
from scalecard.hardware.failures import empty_cache
from scalecard.hardware.links import Link
from scalecard.hardware.machine import Machine
from scalecard.hardware.vendors.nvidia import nccl
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.counting import count
from scalecard.measuring.interleaved_timing import round_records
from scalecard.measuring.prepare import guarded
from scalecard.measuring.spec import MOST_BYTES, ByteSizes, Common, Positive, Several
from scalecard.records.axes import Case, Scalar
from scalecard.records.record import Check, Reason, Record

CHUNK = 2**20  # bytes of a file that are read at a time
# What hardware counts when something goes wrong. Source: Linux kernel, ABI/stable/sysfs-class-infiniband.
PORT_COUNTERS = {
    "symbol_error": "symbol errors",
    "link_downed": "link downed",
    "port_rcv_errors": "receive errors",
    "port_xmit_discards": "send discards",
}
Part = tuple[str, int | str]  # ("device", its number) or ("adapter", the name of its port)
Counts = dict[tuple[Part, str], int]


@dataclass(frozen=True, kw_only=True)
class Amounts(Common):
    """How much of everything: products of size x size matrices, bytes, seconds of load."""

    size: Positive
    products: Positive
    dtypes: Several[Literal["float32", "bfloat16"]]
    memory_bytes: Annotated[int, Field(ge=4, le=MOST_BYTES)]
    link_bytes: ByteSizes
    load_seconds: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)]


def records(of: Amounts, machine: Machine) -> Iterator[Record]:
    """All of it, on the node that this process is on."""
    with open_devices(machine) as devices:
        yield from _devices(of, machine, devices)
        yield from _pairs(of, devices)
        yield from _load(of, devices)
    empty_cache()
    yield from _host_memory(of)
    yield from _storage(of)
    for name, rate in link_rates().items():
        yield Record(case={"part": "adapter", "adapter": name}, metric="rate", unit="B/s", samples=[[rate]])


def _devices(of: Amounts, machine: Machine, devices: Sequence[Device]) -> Iterator[Record]:
    progress.doing(f"{progress.counted(len(devices), 'device')}: products, memory, copies from and to the host")
    for dtype in of.dtypes:
        at = Products(of.size, of.products, dtype)
        case: Case = {"part": "compute", **asdict(at)}
        if note := matmul.unsupported(dtype, devices[0]):
            yield Record.skipped(case, note)
        else:
            yield from _each(of, devices, case, partial(_products, of, at))
    for access in copies.PASSES:
        case = {"part": "memory", "access": access, "bytes": of.memory_bytes}
        yield from _each(of, devices, case, partial(copies.subject_in_memory, of.seed, access, of.memory_bytes))
    if machine.emulated:
        yield Record.skipped({"part": "host link"}, "no GPU here: the memory of CPU workers is the host's")
        return
    for direction, size in product(("to device", "to host"), of.link_bytes):
        case = {"part": "host link", "direction": direction, "memory": "pinned", "bytes": size}
        yield from _each(of, devices, case, partial(_host_link, of, direction, size))


def _each(of: Amounts, devices: Sequence[Device], case: Case, make: Callable[[Device], Subject]) -> Iterator[Record]:
    """The same work on every device: in turns, then on all at once."""
    for at_once in (False, True)[: len(devices)]:
        variants = _on_each(devices, make, case, at_once=at_once)
        found = round_records(variants, devices=devices, rule=of.measure, at_once=at_once)
        yield from guarded(found, {**case, "at_once": at_once})


def _on_each(devices: Sequence[Device], make: Callable[[Device], Subject], case: Case, **more: Scalar) -> list[Variant]:
    cases: list[Case] = [{**case, "device": device.index, **more} for device in devices]
    return [
        Variant(name=str(device), case=own, build=make, timed_at=device, place=device)
        for device, own in zip(devices, cases, strict=True)
    ]


def _products(of: Amounts, at: Products, device: Device) -> Subject:
    return matmul.subject(of.seed, "concurrent", [device], at)


def _host_link(of: Amounts, direction: str, size: int, device: Device) -> Subject:
    """Copies from or to pinned memory of the NUMA node next to the GPU."""
    with near([device.index]):
        source, target = (None, device) if direction == "to device" else (device, None)
        here = copies.filled(size, "device" if source else "pinned", source, of.seed)
        there = copies.empty(size, "device" if target else "pinned", target)
    return copies.subject(device, here, there, wait=False)


def _pairs(of: Amounts, devices: Sequence[Device]) -> Iterator[Record]:
    """Every ordered pair of devices by itself; then, in turns, every device sends to one other at the same time."""
    if len(devices) == 1:
        yield Record.skipped({"part": "device link"}, "needs 2 devices, this machine has 1")
    able = [device for device in devices if not device.fault]
    for device in devices:
        if device.fault:
            case: Case = {"part": "device link", "device": device.index}
            yield Record.failed(case, f"{device} failed before: {device.fault}", reason=Reason.DEVICE_FAULT)
    turns = [[Link(able[a], able[b]) for a, b in turn] for turn in copies.shifts(len(able))]
    alone = [link for turn in turns for link in turn]
    if not alone:
        return
    for size, (at_once, turn) in product(of.link_bytes, [(False, alone), *((True, turn) for turn in turns)]):
        progress.doing(f"{progress.counted(len(turn), 'pair')} of devices, {size} bytes{', all at once' * at_once}")
        case = {"part": "device link", "bytes": size, "at_once": at_once}
        variants = [
            Variant(
                name=str(link),
                case={**case, "source": link.source.index, "target": link.target.index, "peer": link.peer},
                build=partial(copies.subject_on_link, link, of.seed),
                timed_at=size,
                place=link,
            )
            for link in turn
        ]
        yield from guarded(round_records(variants, devices=devices, rule=of.measure, at_once=at_once), case)


def _load(of: Amounts, devices: Sequence[Device]) -> Iterator[Record]:
    """All devices multiply matrices until heat would show; the samples are in the order in which they were taken.

    In the last of the dtypes that all of them support.
    """
    notes = {dtype: [matmul.unsupported(dtype, device) for device in devices] for dtype in of.dtypes}
    supported = [dtype for dtype in of.dtypes if not any(notes[dtype])]
    if not supported:
        yield Record.skipped({"part": "load"}, max(notes[of.dtypes[-1]]))
        return
    progress.doing(f"a load of {of.load_seconds:g} s on all devices")
    each = max(1e-3, of.load_seconds / len(devices))
    rule = replace(of.measure, block_seconds=0.1, max_rounds=100_000, min_seconds=of.load_seconds, max_seconds=each)
    at = Products(of.size, of.products, supported[-1])
    variants = _on_each(devices, partial(_products, of, at), {"part": "load"}, **asdict(at))
    yield from guarded(round_records(variants, devices=devices, rule=rule, at_once=True), {"part": "load"})


def _host_memory(of: Amounts) -> Iterator[Record]:
    """Copies within the memory of each NUMA node, by its own cores."""
    for node, cores in host.numa_nodes().items() or [(None, sorted(os.sched_getaffinity(0)))]:
        case: Case = {"part": "host memory", "numa_node": node, "bytes": of.memory_bytes}
        with host.on(cores), closing(CpuDevice(0, len(cores))) as worker:
            build = partial(copies.subject_in_memory, of.seed, "copy", of.memory_bytes)
            variant = Variant(name=f"NUMA node {node}", case=case, build=build, timed_at=worker)
            yield from round_records([variant], devices=[worker], rule=of.measure)


def _storage(of: Amounts) -> Iterator[Record]:
    """Where training images come from: how much room there is, and how fast it is read."""
    case: Case = {"part": "storage", "bytes": of.memory_bytes}
    try:
        folder = Path(of.data_dir)
        folder.mkdir(parents=True, exist_ok=True)
        free = float(shutil.disk_usage(folder).free)
        yield Record(case={"part": "storage"}, metric="free_space", unit="B", samples=[[free]])
        with file_of(folder, of.memory_bytes) as (path, checksum):
            variant = Variant(name="storage", case=case, build=partial(reading, path), timed_at=checksum)
            yield from round_records([variant], devices=[], rule=of.measure)
    except OSError as error:
        yield Record.skipped(case, f"no file of this size can be written to data_dir: {error.strerror}")


@contextmanager
def file_of(folder: Path, size: int) -> Iterator[tuple[Path, int]]:
    """A file of random bytes on the storage of this folder, and their CRC-32; OSError if there is no room for it."""
    checksum = 0
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".scalecard-") as file:
        for written in range(0, size, CHUNK):
            part = os.urandom(min(CHUNK, size - written))
            checksum = zlib.crc32(part, checksum)
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
        yield Path(file.name), checksum


def reading(path: Path, checksum: int) -> Subject:
    """Reads the file once, past the page cache where the file system allows that, in pieces of a megabyte."""
    buffer = bytearray(CHUNK)

    def pieces() -> Iterator[int]:
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while length := file.readinto(buffer):
                yield length

    def work() -> None:
        for length in pieces():
            count("read bytes", length)

    def prove() -> Iterator[Check]:
        found = 0
        for length in pieces():
            found = zlib.crc32(memoryview(buffer)[:length], found)
        yield Check(name="CRC-32 of what was read", dtype="uint8", difference=float(found != checksum), tolerance=0.0)

    return Subject(work=work, prove=prove, expected={"read bytes": path.stat().st_size})


@contextmanager
def watched() -> Iterator[Callable[[], list[Record]]]:
    """What is called at the end returns a record of each counter: its value before, and now."""
    before = error_counts()
    with vendors.here().counting_faults() as xids:

        def records() -> list[Record]:
            after = error_counts()
            known = {key: [float(before[key]), float(after[key])] for key in before if key in after}
            known |= {(("device", index), "XID"): [0.0, float(count)] for index, count in xids().items()}
            found = []
            for ((kind, which), counter), samples in known.items():
                case: Case = {"part": "counters", kind: which, "counter": counter}
                found.append(Record(case=case, metric="errors", unit="count", samples=[samples]))
            note = "no GPU and no InfiniBand here that counts errors"
            return found or [Record.skipped({"part": "counters"}, note, metric="errors", unit="count")]

        yield records


def error_counts() -> Counts:
    """Every counter that answers, since the driver was loaded or, of ECC and rows, in the card's life."""
    found: Counts = {}
    with vendors.session() as gpus:
        for index, gpu in enumerate(gpus):
            for name, ask in gpu.error_counters().items():
                value = Missing().ask(name, ask)
                if value is not None:
                    found[("device", index), name] = int(value)
    for port in sorted(nccl.ADAPTERS.glob("*/ports/*")):
        for file, name in PORT_COUNTERS.items():
            value = Missing().ask(name, lambda: int((port / "counters" / file).read_text()))
            if value is not None:
                found[("adapter", nccl.port_name(port)), name] = value
    return found


def link_rates() -> dict[str, float]:
    """Bytes per second of each InfiniBand port, by its name: '400 Gb/sec (4X NDR)' is 5e10."""
    rates = {}
    for port in sorted(nccl.ADAPTERS.glob("*/ports/*")):
        text = Missing().ask("rate", (port / "rate").read_text)
        if text:
            rates[nccl.port_name(port)] = float(text.split()[0]) * 1e9 / 8
    return rates
