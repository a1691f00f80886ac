"""Reading, writing and copying a device's own memory: one pass over `bytes`.

read    the largest of all values is found
write   every value is set
copy    every value is read, and written elsewhere
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.proof import same_values
from scalecard.records.record import Check

PASSES = {"read": 1, "write": 1, "copy": 2}  # how often every byte crosses the memory's interface


def subject(seed: int, access: str, size: int, device: Device) -> Subject:
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
        largest = _planted(source, size)
        target.zero_() if access == "copy" else None
        work()
        device.synchronize()
        wanted = {"read": largest, "write": torch.ones_like(source), "copy": source}[access]
        ours = {"read": found, "write": source, "copy": target}[access]
        yield same_values(f"{access}: every value, one by one", ours, wanted)

    counted = {"read": "read bytes", "write": "written bytes", "copy": "copied bytes"}[access]
    return Subject(work=work, prove=prove, expected={counted: source.nbytes})


def _planted(source: Tensor, size: int) -> Tensor:
    """The largest value, put where a reduction that stops early does not look: at the end."""
    source[-1] = 2.0
    return torch.tensor(2.0, device=source.device)
