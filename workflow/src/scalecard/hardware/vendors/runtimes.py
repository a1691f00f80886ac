"""What PyTorch does not offer under one name for the devices of every vendor: formats, switches, graphs.

The other half of the protocol (in __init__.py) knows no torch.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch

from scalecard.hardware.machine import Machine
from scalecard.hardware.vendors import CPU, nvidia
from scalecard.hardware.vendors.nvidia import runtime as nvidia_runtime

Work = Callable[[], None]
Recorder = Callable[[Work, Work, torch.device], Work]
GPUS_ONLY = {
    "tf32": "TF32 exists on GPUs only",
    "benchmark": "cuDNN exists on GPUs only",
    "graphs": "CUDA graphs exist on GPUs only",
}


class Runtime(Protocol):
    """A module `runtime` of a vendor. By default what holds where nothing can be switched."""

    def lacks(self, what: str, device: torch.device) -> str:
        """Why this device has no "tf32", "bfloat16" or "graphs", or no use for "benchmark" or "bf16"; '' if it has."""

    def allow_tf32(self, *, allowed: bool) -> None:
        """Let float32 be computed in TF32 from now on, or nothing, whatever was set before."""
        return

    def switched(self, *, tf32: bool, benchmark: bool) -> AbstractContextManager[None]:
        """Meanwhile compute float32 in TF32, and try kernels for each new shape; then all is as before."""
        return nullcontext()

    @property
    def recorded(self) -> Recorder | None:
        """recorded(work, warm_up, device): what replays the work as one graph, after runs of `warm_up` beside it.

        None where `lacks` says that there are no graphs.
        """
        return None

    def refuse_unusable(self, machine: Machine) -> None:
        """ValueError if PyTorch cannot compute on this machine's GPUs, or means others than the driver lists."""
        return


class CpuRuntime(Runtime):
    """PyTorch computes on every CPU that it starts on."""

    def lacks(self, what: str, device: torch.device) -> str:
        """Every CPU computes in bfloat16, but only those with instructions for it are faster so."""
        if what == "bf16" and not (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()):
            return "this CPU has no instructions for bfloat16, and is slower with it"
        return GPUS_ONLY.get(what, "")


RUNTIMES: Mapping[str, Runtime] = {nvidia.KIND: nvidia_runtime, CPU.KIND: CpuRuntime()}


def runtime_of(device: torch.device) -> Runtime:
    """That of the device's vendor."""
    return RUNTIMES[device.type]


def float32_is_float32() -> None:
    """Switch off what computes float32 with fewer bits, in every vendor's libraries; a result records that."""
    for runtime in RUNTIMES.values():
        runtime.allow_tf32(allowed=False)


def refuse_unusable(machine: Machine) -> None:
    """ValueError if PyTorch cannot compute on this machine's GPUs: an old card or driver, or none at all."""
    RUNTIMES[machine.kind].refuse_unusable(machine)
