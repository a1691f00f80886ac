"""What PyTorch does not offer under one name for the devices of every vendor: formats, switches, graphs.

The other half of the protocol (protocol.py) knows no torch.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

import torch

from scalecard.hardware.machine import Machine
from scalecard.hardware.vendors import cpu, nvidia
from scalecard.hardware.vendors.cpu import runtime as cpu_runtime
from scalecard.hardware.vendors.nvidia import runtime as nvidia_runtime

Work = Callable[[], None]
Recorder = Callable[[Work, Work, torch.device], Work]


class Runtime(Protocol):
    """A module `runtime` of a vendor."""

    def lacks(self, what: str, device: torch.device) -> str:
        """Why this device has no "tf32", "bfloat16" or "graphs", or no use for "benchmark" or "bf16"; '' if it has."""

    def round_products(self, *, tf32: bool) -> None:
        """Let products of float32 matrices be computed in TF32 from now on, or not."""

    def float32_is_float32(self) -> None:
        """Let nothing be computed in TF32 from now on, whatever was set before."""

    def switched(self, *, tf32: bool, benchmark: bool) -> AbstractContextManager[None]:
        """Meanwhile compute float32 in TF32, and try kernels for each new shape; then all is as before."""

    @property
    def recorded(self) -> Recorder | None:
        """recorded(work, warm_up, device): what replays the work as one graph, after runs of `warm_up` beside it.

        None where `lacks` says that there are no graphs.
        """

    def refuse_unusable(self, machine: Machine) -> None:
        """ValueError if PyTorch cannot compute on a GPU that the driver lists, or means another one."""


RUNTIMES: Mapping[str, Runtime] = {nvidia.KIND: nvidia_runtime, cpu.KIND: cpu_runtime}


def runtime_of(device: torch.device) -> Runtime:
    """That of the device's vendor."""
    return RUNTIMES[device.type]


def float32_is_float32() -> None:
    """Switch off what computes float32 with fewer bits, in every vendor's libraries; a result records that."""
    for runtime in RUNTIMES.values():
        runtime.float32_is_float32()


def refuse_unusable(machine: Machine) -> None:
    """ValueError if PyTorch cannot compute on this machine's GPUs: an old card or driver, or none at all."""
    RUNTIMES[machine.kind].refuse_unusable(machine)
