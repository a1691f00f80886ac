"""Too little memory: which errors mean it, and one sentence about it.

Libraries that cannot be loaded for want of it end in an ImportError.
"""

import resource
from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup/memory.max")
# What the loader, the CPU's allocator, CUDA, cuBLAS and cuDNN say in plain errors.
SIGNS = (
    "failed to map segment",
    "cannot allocate memory",
    "can't allocate memory",
    "cannot apply additional memory protection",
    "out of memory",
    "alloc_failed",
    "unable to find an engine to execute",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out, of the host or of a GPU."""
    return isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in SIGNS)


def sentence(error: BaseException) -> str:
    """What was wanted, how much is free, and which limits hold."""
    free = f"{psutil.virtual_memory().available / 2**20:.0f} MiB are free"
    what = (str(error).splitlines() or [""])[0] or "memory was asked for in vain"
    return f"too little memory: {', '.join([free, *_limits()])} ({what})"


def _limits() -> list[str]:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    said = [] if soft == resource.RLIM_INFINITY else [f"`ulimit -v` allows {soft / 2**20:.0f} MiB"]
    try:
        limit = CGROUP.read_text().strip()
    except OSError:
        limit = "max"
    return said if limit == "max" else [*said, f"the control group allows {int(limit) / 2**20:.0f} MiB"]
