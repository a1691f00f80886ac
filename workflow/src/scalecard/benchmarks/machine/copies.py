"""Copies between the host and a device, between two devices, or within one: `bytes` from one place to another."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from scalecard.hardware.devices import Device, Task
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.proof import same_values
from scalecard.records.record import Check

HOST = torch.device("cpu")


def subject(device: Device, source: Tensor, target: Tensor, *, wait: bool) -> Subject:
    """Copies source to target on `device`; with `wait`, the call that is timed waits for the copy itself."""
    work = partial(_run, device.repeating(_copy, target, source, not wait), wait)

    def prove() -> Iterator[Check]:
        target.zero_()
        work()
        device.synchronize()
        yield same_values("contents after waiting, byte by byte", target, source)

    return Subject(work=work, prove=prove, expected={"copied bytes": source.nbytes})


def _run(copy: Callable[[], object], wait: bool) -> None:
    """On a GPU a blocking copy waits itself."""
    task = copy()
    if wait and isinstance(task, Task):
        task.result()


def _copy(target: Tensor, source: Tensor, non_blocking: bool) -> None:
    target.copy_(source, non_blocking=non_blocking)


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
