"""What the NVIDIA driver says of its GPUs, through nvidia-ml-py. Without a driver every answer is empty.

A fact that a GPU or a virtual machine does not give is None; nothing here fails for a missing fact.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pynvml


@dataclass(frozen=True)
class Gpu:
    """A GPU that this process may use, under the name that torch.cuda.get_device_name also gives."""

    name: str
    uuid: str
    handle: Any


@contextmanager
def _session() -> Iterator[bool]:
    """Whether a driver answers."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        pynvml.nvmlShutdown()


def _ask(question: Callable[..., Any], *args: Any) -> Any:
    try:
        return question(*args)
    except pynvml.NVMLError:
        return None


def _gpus() -> list[Gpu]:
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    return [Gpu(pynvml.nvmlDeviceGetName(h), pynvml.nvmlDeviceGetUUID(h), h) for h in handles]


def _visible() -> list[Gpu]:
    """CUDA_VISIBLE_DEVICES names GPUs by index (in PCI order, which the workflow sets) or by UUID."""
    gpus, wanted = _gpus(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return gpus
    chosen = []
    for name in filter(None, (part.strip() for part in wanted.split(","))):
        if name.isdigit() and int(name) < len(gpus):
            chosen.append(gpus[int(name)])
        else:
            chosen += [gpu for gpu in gpus if gpu.uuid.startswith(name)][:1]
    return chosen


def visible_gpus() -> list[Gpu]:
    """The GPUs that CUDA will enumerate, in its order; their handles are valid inside a session only."""
    with _session() as answers:
        return _visible() if answers else []


def driver_version() -> str | None:
    with _session() as answers:
        return str(_ask(pynvml.nvmlSystemGetDriverVersion)) if answers else None


def details() -> list[dict[str, Any]]:
    """One mapping a visible GPU: memory in bytes, PCIe generation and width (now and at most), watts, MHz, ECC."""
    with _session() as answers:
        return [_detail(gpu) for gpu in _visible()] if answers else []


def _detail(gpu: Gpu) -> dict[str, Any]:
    memory, ecc = _ask(pynvml.nvmlDeviceGetMemoryInfo, gpu.handle), _ask(pynvml.nvmlDeviceGetEccMode, gpu.handle)
    power = _ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, gpu.handle)
    return {
        "name": gpu.name,
        "uuid_hash": hashlib.sha256(gpu.uuid.encode()).hexdigest()[:12],
        "memory_bytes": memory and memory.total,
        "pcie_gen": _ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, gpu.handle),
        "pcie_gen_max": _ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, gpu.handle),
        "pcie_width": _ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth, gpu.handle),
        "pcie_width_max": _ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth, gpu.handle),
        "nvlinks": _active_links(gpu.handle),
        "power_limit_w": power and power / 1000,
        "sm_clock_max_mhz": _ask(pynvml.nvmlDeviceGetMaxClockInfo, gpu.handle, pynvml.NVML_CLOCK_SM),
        "memory_clock_max_mhz": _ask(pynvml.nvmlDeviceGetMaxClockInfo, gpu.handle, pynvml.NVML_CLOCK_MEM),
        "ecc": ecc and bool(ecc[0]),
    }


def _active_links(handle: Any) -> int:
    states = (_ask(pynvml.nvmlDeviceGetNvLinkState, handle, i) for i in range(pynvml.NVML_NVLINK_MAX_LINKS))
    return sum(state == pynvml.NVML_FEATURE_ENABLED for state in states)


def topology() -> list[list[int | None]]:
    """NVML's common ancestor level for each pair of GPUs (0 same board ... 50 across sockets)."""
    with _session() as answers:
        gpus = _visible() if answers else []
        return [
            [_ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, a.handle, b.handle) if a != b else None for b in gpus]
            for a in gpus
        ]
