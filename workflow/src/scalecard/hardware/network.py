"""How this host reaches another one: its own address on the way there, and whether InfiniBand is present."""

import ctypes.util
import resource
import socket
from pathlib import Path

MEMLOCK = 2**30  # bytes; a smaller limit of locked memory is a default that nobody chose for InfiniBand
VERBS = Path("/dev/infiniband")  # exists if there is InfiniBand, which NCCL then uses between nodes


def address_towards(peer: str) -> str:
    """This host's own address on the route to `peer`. Nothing is sent."""
    (family, _, _, _, address), *_ = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def why_slow() -> list[str]:
    """Why NCCL would use TCP, or fail, between nodes that have InfiniBand; empty if it would not."""
    if not VERBS.exists():
        return []
    if ctypes.util.find_library("ibverbs") is None:
        return [f"{VERBS} exists, but libibverbs is not installed: NCCL uses TCP between nodes"]
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if 0 <= locked < MEMLOCK:  # -1 is no limit
        limit = f"RLIMIT_MEMLOCK is {locked / 2**20:g} MiB"
        return [
            f"{limit}: InfiniBand locks all that it sends, and NCCL may fail between nodes; set ulimit -l unlimited"
        ]
    return []
