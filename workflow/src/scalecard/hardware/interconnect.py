"""InfiniBand, and what keeps it from being used as it could be: no library, links down, little locked memory ..."""

import ctypes.util
import resource
from collections.abc import Iterator
from pathlib import Path

from scalecard.hardware.vendors import VENDORS

ADAPTERS = Path("/sys/class/infiniband")
VERBS = Path("/dev/infiniband")  # what programs open to send; a container sees the adapters even where it lacks this
LEAST_LOCKED = 2**30  # bytes; NCCL locks its buffers of every channel and peer


def why_slow() -> Iterator[str]:
    """In words; nothing if all is well, or if there is no adapter."""
    if not ADAPTERS.exists() or not any(ADAPTERS.iterdir()):
        return
    if not VERBS.exists():
        yield f"{VERBS} is missing here: NCCL uses TCP between nodes"
    elif ctypes.util.find_library("ibverbs") is None:
        yield "libibverbs is not installed: NCCL uses TCP between nodes"
    ports = {port: (port / "state").read_text().split(":")[-1].strip() for port in sorted(ADAPTERS.glob("*/ports/*"))}
    down = [f"{port.parts[-3]} port {port.name} ({state})" for port, state in ports.items() if state != "ACTIVE"]
    if down:
        yield f"InfiniBand links that are not active: {', '.join(down)}"
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit != resource.RLIM_INFINITY and limit < LEAST_LOCKED:
        yield f"RLIMIT_MEMLOCK is {limit / 2**20:g} MiB: NCCL may fail on InfiniBand; set ulimit -l unlimited"
    for vendor in VENDORS:
        yield from vendor.collectives.why_slow() if vendor.collectives else ()
