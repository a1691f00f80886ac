"""Copies between host and device, over a link between two devices, and within one device's memory: `bytes` each.

A device's own memory is read (the largest of all values is found), written (every value is set) or copied in one pass.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from scalecard.hardware.devices import Device, Task
from scalecard.hardware.links import Link
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.proof import same_values
from scalecard.records.record import Check

HOST = torch.device("cpu")
PASSES = {"read": 1, "write": 1, "copy": 2}  # how often every byte crosses the memory's interface


def subject(device: Device, source: Tensor, target: Tensor, wait: bool) -> Subject:
    """Copies source to target on `device`; with `wait`, the call that is timed waits for the copy itself."""
    copy = device.repeating(partial(target.copy_, source, non_blocking=not wait))

    def work() -> None:
        """On a GPU a blocking copy waits itself."""
        task = copy()
        if wait and isinstance(task, Task):
            task.result()

    def prove() -> Iterator[Check]:
        target.zero_()
        work()
        device.synchronize()
        yield same_values("contents after waiting, byte by byte", target, source)

    return Subject(work=work, prove=prove, expected={"copied bytes": source.nbytes})


def filled(size: int, memory: str, device: Device | None, seed: int) -> Tensor:
    """Random bytes, generated on the device that needs them: a gigabyte takes the host seconds. None is the host.

    Only the host's memory can be pinned, so `memory` says nothing about a GPU's.
    """
    where = device.torch if device else HOST
    generator = torch.Generator(where).manual_seed(seed)
    made = torch.randint(0, 255, (size,), dtype=torch.uint8, device=where, generator=generator)
    return made.pin_memory() if _pinned(memory, device) else made


def empty(size: int, memory: str, device: Device | None) -> Tensor:
    """Room for as many bytes; pinned as in `filled`."""
    where = device.torch if device else HOST
    return torch.empty(size, dtype=torch.uint8, device=where, pin_memory=_pinned(memory, device))


def _pinned(memory: str, device: Device | None) -> bool:
    """Whether memory is to be pinned: then on the NUMA node of the caller, not where one of its cached blocks lies.

    PyTorch hands out again what was pinned and given back before, which may have been for a GPU of another node.
    """
    pinned = device is None and memory == "pinned"
    if pinned:
        torch._C._host_emptyCache()
    return pinned


def subject_on_link(link: Link, seed: int, size: int) -> Subject:
    """`size` bytes from the link's source to its target."""
    here = filled(size, "device", link.source, seed)
    there = empty(size, "device", link.target)
    for end in (link.source, link.target):
        end.synchronize()
    work = link.copying(there, here)

    def prove() -> Iterator[Check]:
        there.zero_()
        link.synchronize()
        work()
        link.synchronize()
        yield same_values("contents after waiting, byte by byte", there, here.to(there.device))

    return Subject(work=work, prove=prove, expected={"copied bytes": here.nbytes})


def shifts(number: int) -> Iterator[list[tuple[int, int]]]:
    """Every ordered pair of devices once, in turns in which each device sends to one other and receives from one."""
    for distance in range(1, number):
        yield [(source, (source + distance) % number) for source in range(number)]


def subject_in_memory(seed: int, access: str, size: int, device: Device) -> Subject:
    """`size` bytes, as float32 values."""
    generator = torch.Generator(device.torch).manual_seed(seed)
    source = torch.rand(size // 4, device=device.torch, generator=generator)
    target = torch.empty_like(source) if access == "copy" else source
    found = torch.zeros((), device=device.torch)
    works: dict[str, Callable[[], object]] = {
        "read": device.repeating(partial(torch.amax, source, dim=0, out=found)),
        "write": device.repeating(source.fill_, 1.0),
        "copy": device.repeating(target.copy_, source),
    }
    work = works[access]

    def prove() -> Iterator[Check]:
        source[-1] = 2.0  # the largest value, where a reduction that stops early does not look
        if access == "copy":
            target.zero_()
        work()
        device.synchronize()
        wanted = {"read": source[-1].clone(), "write": torch.ones_like(source), "copy": source}[access]
        ours = {"read": found, "write": source, "copy": target}[access]
        yield same_values(f"{access}: every value, one by one", ours, wanted)

    counted = {"read": "read bytes", "write": "written bytes", "copy": "copied bytes"}[access]
    return Subject(work=work, prove=prove, expected={counted: source.nbytes})
