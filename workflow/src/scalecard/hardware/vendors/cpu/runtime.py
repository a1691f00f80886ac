"""What the host's CPU has of all that GPUs offer beyond PyTorch's common names: bfloat16, on some."""

from contextlib import AbstractContextManager, nullcontext

import torch

from scalecard.hardware.machine import Machine

GPUS_ONLY = {
    "tf32": "TF32 exists on GPUs only",
    "benchmark": "cuDNN exists on GPUs only",
    "graphs": "CUDA graphs exist on GPUs only",
}
recorded = None


def lacks(what: str, device: torch.device) -> str:
    """Every CPU computes in bfloat16, but only those with instructions for it are faster so."""
    if what == "bf16" and not (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()):
        return "this CPU has no instructions for bfloat16, and is slower with it"
    return GPUS_ONLY.get(what, "")


def round_products(*, tf32: bool) -> None:
    """A CPU has no TF32."""


def float32_is_float32() -> None:
    """Nor anything else that rounds float32."""


def switched(*, tf32: bool, benchmark: bool) -> AbstractContextManager[None]:
    """Nothing can be switched."""
    return nullcontext()


def refuse_unusable(machine: Machine) -> None:
    """PyTorch computes on every CPU that it starts on."""
