"""What does it cost to move data between host and devices, and what can hide it?

First come the textbook's three steps: compute alone, copy the results to the host, and both with non-blocking copies.
Then the full matrix of direction x memory x call x size, because the textbook's comparison changes two things at once
(a non-blocking copy to the host also gets a pinned destination) and overlaps nothing: on the stream that computes, a
copy waits for its turn. A further step copies on a separate stream.

The answer would be wrong if a non-blocking copy counted as done when it is only enqueued (enqueue and completion are
kept apart), or copied nothing or too little (what the very call that is timed brought is compared after waiting, and
its bytes are counted). Without GPUs these are copies within host memory.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Literal

import torch
from torch import Tensor

from scalecard import progress
from scalecard.benchmarks.machine import copies
from scalecard.hardware.devices import Device, Task, copy_engine, keep_until_copied, near, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.interleaved_timing import round_records, time_rounds
from scalecard.measuring.prepare import guarded
from scalecard.measuring.proof import same_values
from scalecard.measuring.spec import ByteSizes, Common, Positive, Several
from scalecard.measuring.stopping_rule import COARSE, coarse_to_fine, in_equal_parts
from scalecard.records.axes import Case
from scalecard.records.record import Check, Record

Ends = tuple[Device | None, Device | None]  # source and target of a copy; None is the host


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    size: Positive
    products: Positive
    bytes: ByteSizes
    memory: Several[Literal["pageable", "pinned"]]
    calls: Several[Literal["blocking", "non_blocking"]]


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """The textbook's three steps, then the matrix."""
    with open_devices(machine) as devices:
        yield from guarded(_textbook(spec, devices), {"part": "textbook"})
        if machine.emulated:
            why = "no GPU here: copies within host memory are measured instead, pageable only"
            yield Record.skipped({"part": "matrix", "source": "host", "target": 0}, why)
        if machine.emulated or machine.num_devices == 1:
            yield Record.skipped({"part": "matrix", "source": 0, "target": 1}, "needs 2 GPUs")
        sizes = coarse_to_fine(sorted(spec.bytes))
        wanted = [
            (_case(ends, size), ends)
            for size in sizes
            for ends in _ends(machine, devices)
            if size in _sizes(spec, ends)
        ]
        headline = sum(case["bytes"] in sizes[:COARSE] for case, _ in wanted)
        for case, ends in in_equal_parts(wanted, label=lambda one: _label(*one), headline=headline):
            yield from guarded(_matrix_point(spec, case, ends, devices[0]), case)


def _textbook(spec: Spec, devices: list[Device]) -> Iterator[Record]:
    device, engine = devices[0], copy_engine(devices) or devices[0]
    absent = {}
    if device.torch.type == "cpu":
        absent["non-blocking"] = "a CPU worker computes and copies in turn; on GPUs this is the textbook's step"
    if engine is device:
        absent["overlapped"] = "needs a second CPU worker as the copy engine"
    for step, note in absent.items():
        yield Record.skipped({"part": "textbook", "step": step}, note)
    x = torch.rand(spec.size, spec.size, generator=torch.Generator().manual_seed(spec.seed)).to(device.torch)
    results = device.call(_compute, x, spec.products)
    case: Case = {"part": "textbook", "bytes": results[0].nbytes * spec.products}
    works = _works(device, engine, x, results)
    variants = [
        Variant(name=step, case={**case, "step": step}, build=partial(_step, devices, results, step), timed_at=work)
        for step, work in works.items()
        if step not in absent
    ]
    progress.doing(f"the textbook's three steps: {spec.products} products of {spec.size} x {spec.size}")
    with _beside(device):
        records = [*round_records(variants, devices=devices, rule=spec.measure)]
    yield from records


def _works(device: Device, engine: Device, x: Tensor, results: list[Tensor]) -> dict[str, Callable[[], list[Task]]]:
    """Each step returns the tasks whose values are what it computed or copied."""
    count = len(results)

    def sequential() -> list[Task]:
        made = device.submit(_compute, x, count)
        device.synchronize()
        return [engine.submit(_to_host, made, False)]

    def overlapped(copier: Device) -> list[Task]:
        products = [device.submit(torch.mm, x, x) for _ in range(count)]
        return [copier.submit(_to_host, product, True) for product in products]

    return {
        "compute": lambda: [device.submit(_compute, x, count)],
        "copy": lambda: [engine.submit(_to_host, results, False)],
        "compute, then copy": sequential,
        "non-blocking": partial(overlapped, device),
        "overlapped": partial(overlapped, engine),
    }


def _step(devices: list[Device], results: list[Tensor], step: str, work: Callable[[], list[Task]]) -> Subject:
    """One of the textbook's steps: what it brings must be the products that were computed before."""

    def prove() -> Iterator[Check]:
        tasks = work()
        for device in devices:
            device.synchronize()
        brought = [tensor for task in tasks for tensor in task.result()]
        for ours, result in zip(brought, results, strict=True):
            yield same_values(f"each of {len(results)} results, element by element", ours, result)

    expected = {} if step == "copy" else {"FLOPs": 2.0 * len(results) * len(results[0]) ** 3}
    copied = 0 if step == "compute" else sum(tensor.nbytes for tensor in results)
    return Subject(work=work, prove=prove, expected={**expected, "copied bytes": copied})


def _compute(x: Tensor, products: int) -> list[Tensor]:
    return [x @ x for _ in range(products)]


def _to_host(results: Tensor | list[Tensor], non_blocking: bool) -> list[Tensor]:
    tensors = [results] if isinstance(results, Tensor) else results
    return [keep_until_copied(t).to("cpu", non_blocking=non_blocking, copy=True) for t in tensors]


def _ends(machine: Machine, devices: list[Device]) -> Iterator[Ends]:
    """Of every copy: between the host and the first device, within that, and between any two devices."""
    if machine.emulated:
        yield None, None
        return
    first = devices[0]
    yield from ((None, first), (first, None), (first, first))
    yield from permutations(devices, 2)


def _case(ends: Ends, size: int) -> Case:
    source, target = ("host" if end is None else end.index for end in ends)
    return {"part": "matrix", "source": source, "target": target, "bytes": size}


def _label(case: Case, ends: Ends) -> str:
    return f"{' to '.join(str(end or 'host') for end in ends)}, {case['bytes']} bytes"


def _sizes(spec: Spec, ends: Ends) -> Sequence[int]:
    """All sizes; for all pairs but the first one, only the largest, which reveals a bad link."""
    further = any(end is not None and end.index > 1 for end in ends)
    return [max(spec.bytes)] if further else spec.bytes


def _matrix_point(spec: Spec, case: Case, ends: Ends, first: Device) -> Iterator[Record]:
    """One source, target and size: memory x call, interleaved. What has the host at both ends, `first` copies."""
    source, target = ends
    device, size = target or source or first, int(case["bytes"] or 0)
    host_side = source is None or target is None
    calls = spec.calls if host_side or device.torch.type == "cpu" else spec.calls[-1:]  # GPU copies never block
    memories: Sequence[str] = spec.memory if host_side else ("device",)
    variants = list[Variant]()
    with _beside(*(end for end in (source, target) if end)):
        for memory in ("pageable",) if device.torch.type == "cpu" else memories:
            here, there = copies.filled(size, memory, source, spec.seed), copies.empty(size, memory, target)
            build = partial(copies.subject, device, here, there)
            for call in calls:
                own: Case = {**case, "memory": memory, "call": call}
                wait = call == "blocking"
                variants.append(Variant(name=f"{memory} {call}", case=own, build=build, timed_at=wait))
        timings = time_rounds(variants, devices=[device], rule=spec.measure)
    for timing in timings:
        yield timing.enqueue_record()
        yield timing.record()


def _beside(*devices: Device) -> AbstractContextManager[None]:
    """On the NUMA nodes of these GPUs alone, where the host's memory of their copies then lies too."""
    indices = [device.index for device in devices if device.torch.type != "cpu"]
    return near(indices) if indices else nullcontext()
