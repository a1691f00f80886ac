"""NCCL: which way it really sends, by its own word in the log of a start, and what keeps it from a faster one.

... NCCL INFO Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/2/GDRDMA
... NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM
... NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)
... NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels ...
"""

import ctypes.util
import os
import re
import resource
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

CHANNEL = re.compile(r"NCCL INFO Channel .* via (\w+)(?:/(\w+))?(.*)")
MULTICAST = "NVLS multicast support is available"  # NVSwitches that can add up themselves
NVLS_CHANNELS = re.compile(r"NCCL INFO .*\b(\d+) nvls channels")
ADAPTERS = Path("/sys/class/infiniband")
VERBS = Path("/dev/infiniband")  # what programs open to send; a container sees the adapters even where it lacks this
LEAST_LOCKED = 2**30  # bytes; NCCL locks its buffers of every channel and peer
MODULES = Path("/sys/module")
DRIVER = Path("/proc/driver/nvidia/version")
REMARKS = {
    "NET/Socket": "NCCL uses TCP sockets between nodes: the network is not used as it could be",
    "NET/IB": "NCCL uses InfiniBand without GPUDirect: data between nodes passes through the host's memory",
    "SHM": "NCCL passes data between GPUs of a node through the host's memory: they cannot reach each other",
}


def process_group() -> str:
    """Of the two for NCCL, since PyTorch 2.15 the second, unless this says otherwise."""
    return "ProcessGroupNCCL" if os.environ.get("TORCH_DIST_USE_NCCL2") == "0" else "ProcessGroupNCCL2"


def logging_to(folder: Path) -> dict[str, str]:
    # With NVSwitches NCCL would add up in them (NVLS), and connect no channels between the GPUs; it still counts them.
    return {
        "NCCL_ALGO": "Ring",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,P2P,SHM,NET",
        "NCCL_DEBUG_FILE": str(folder / "%p"),
    }


def paths_in(log: str) -> dict[str, int]:
    """As NET/IB/GDRDMA, NET/Socket, P2P, SHM or NVLS."""
    found: Counter[str] = Counter()
    for kind, carrier, rest in CHANNEL.findall(log):
        direct = "/GDRDMA" if "GDRDMA" in rest else ""
        found[f"{kind}/{carrier}{direct}" if kind == "NET" else kind] += 1
    if MULTICAST in log:
        found["NVLS"] = sum(map(int, NVLS_CHANNELS.findall(log)))
    return dict(sorted((+found).items()))


def remarks(paths: Mapping[str, int]) -> list[str]:
    return [remark for path, remark in REMARKS.items() if path in paths]


def port_name(port: Path) -> str:
    """'mlx5_0 port 1' for /sys/class/infiniband/mlx5_0/ports/1."""
    return f"{port.parts[-3]} port {port.name}"


def why_slow() -> Iterator[str]:
    """What keeps InfiniBand from being used as it could be; nothing if all is well, or if there is no adapter."""
    if not ADAPTERS.exists() or not any(ADAPTERS.iterdir()):
        return
    if not VERBS.exists():
        yield f"{VERBS} is missing here: NCCL uses TCP between nodes"
    elif ctypes.util.find_library("ibverbs") is None:
        yield "libibverbs is not installed: NCCL uses TCP between nodes"
    ports = {port: (port / "state").read_text().split(":")[-1].strip() for port in sorted(ADAPTERS.glob("*/ports/*"))}
    down = [f"{port_name(port)} ({state})" for port, state in ports.items() if state != "ACTIVE"]
    if down:
        yield f"InfiniBand links that are not active: {', '.join(down)}"
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit != resource.RLIM_INFINITY and limit < LEAST_LOCKED:
        yield f"RLIMIT_MEMLOCK is {limit / 2**20:g} MiB: NCCL may fail on InfiniBand; set ulimit -l unlimited"
    # GPUDirect RDMA. The open kernel modules need no peer module: they share memory by DMA-BUF.
    closed = DRIVER.exists() and "Open Kernel Module" not in DRIVER.read_text()
    if closed and not any((MODULES / name).exists() for name in ("nvidia_peermem", "nv_peer_mem")):
        yield "GPUDirect RDMA is missing (load nvidia_peermem): data between nodes passes through the host's memory"
