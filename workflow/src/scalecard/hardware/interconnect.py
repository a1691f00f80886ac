"""What keeps InfiniBand from being used as it could be: no library, links down, little locked memory, no GPUDirect."""

import ctypes.util
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path

ADAPTERS = Path("/sys/class/infiniband")
VERBS = Path("/dev/infiniband")  # what programs open to send; a container sees the adapters even where it lacks this
MODULES = Path("/sys/module")
DRIVER = Path("/proc/driver/nvidia/version")
PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")
LEAST_LOCKED = 2**30  # bytes; NCCL locks its buffers of every channel and peer


def why_slow() -> list[str]:
    """In words; empty if all is well, or if there is no adapter."""
    if not ADAPTERS.exists() or not any(ADAPTERS.iterdir()):
        return []
    return [*_unusable(), *_links_down(), *_memory(), *_gpu_direct()]


def _unusable() -> Iterator[str]:
    if not VERBS.exists():
        yield f"{VERBS} is missing here: NCCL uses TCP between nodes"
    elif ctypes.util.find_library("ibverbs") is None:
        yield "libibverbs is not installed: NCCL uses TCP between nodes"


def _links_down() -> Iterator[str]:
    ports = {port: (port / "state").read_text().split(":")[-1].strip() for port in sorted(ADAPTERS.glob("*/ports/*"))}
    down = [f"{port.parts[-3]} port {port.name} ({state})" for port, state in ports.items() if state != "ACTIVE"]
    if down:
        yield f"InfiniBand links that are not active: {', '.join(down)}"


def _memory() -> Iterator[str]:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit != resource.RLIM_INFINITY and limit < LEAST_LOCKED:
        yield f"RLIMIT_MEMLOCK is {limit / 2**20:g} MiB: NCCL may fail on InfiniBand; set ulimit -l unlimited"


def _gpu_direct() -> Iterator[str]:
    """The open kernel modules need no peer module: they share memory by DMA-BUF."""
    if not DRIVER.exists() or "Open Kernel Module" in DRIVER.read_text():
        return
    if not any((MODULES / name).exists() for name in PEER_MODULES):
        yield "GPUDirect RDMA is missing (load nvidia_peermem): data between nodes passes through the host's memory"


def ways_of_nccl(paths: Mapping[str, int]) -> list[str]:
    """What a reader should know about the ways that NCCL goes (channels by path), in words."""
    found = []
    if "NET/Socket" in paths:
        found.append("NCCL uses TCP sockets between nodes: the network is not used as it could be")
    if "NET/IB" in paths:
        found.append("NCCL uses InfiniBand without GPUDirect: data between nodes passes through the host's memory")
    if "SHM" in paths:
        found.append("NCCL passes data between GPUs of a node through the host's memory: they cannot reach each other")
    return found
