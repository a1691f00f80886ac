"""Which way NCCL really sends, by its own word: the channels that one untimed start of all ranks reports.

... NCCL INFO Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/2/GDRDMA
... NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM
... NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)
... NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels ...
"""

import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch
from scalecard.distributed.layout import Layout
from scalecard.hardware.machine import Machine

CHANNEL = re.compile(r"NCCL INFO Channel .* via (\w+)(?:/(\w+))?(.*)")
MULTICAST = "NVLS multicast support is available"  # NVSwitches that can add up themselves
NVLS_CHANNELS = re.compile(r"NCCL INFO .*\b(\d+) nvls channels")
NUM_VALUES = 2**22  # 16 MiB: enough for every channel


def used(machine: Machine, layout: Layout) -> dict[str, int]:
    """Channels by path, as NET/IB/GDRDMA, NET/Socket, P2P, SHM or NVLS. Empty on a node that does not take part.

    RanksFailed and RankLost as in `launch`.
    """
    with tempfile.TemporaryDirectory(prefix="scalecard-ranks-") as folder, _logging_to(Path(folder)):
        found: list[dict[str, int]] = launch(_start, folder, layout=layout, machine=machine)
    return found[0] if found else {}


def paths_in(log: str) -> dict[str, int]:
    """Channels by path in what NCCL has written."""
    found: Counter[str] = Counter()
    for kind, carrier, rest in CHANNEL.findall(log):
        direct = "/GDRDMA" if "GDRDMA" in rest else ""
        found[f"{kind}/{carrier}{direct}" if kind == "NET" else kind] += 1
    if MULTICAST in log:
        found["NVLS"] = sum(map(int, NVLS_CHANNELS.findall(log)))
    return dict(sorted((+found).items()))


@contextmanager
def _logging_to(folder: Path) -> Iterator[None]:
    """Ranks that start meanwhile have NCCL write its log to a file each, named by their process."""
    # With NVSwitches NCCL would add up in them (NVLS), and connect no channels between the GPUs; it still counts them.
    wanted = {
        "NCCL_ALGO": "Ring",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,P2P,SHM,NET",
        "NCCL_DEBUG_FILE": str(folder / "%p"),
    }
    before = {key: os.environ.get(key) for key in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def _start(ctx: RankContext, folder: str) -> dict[str, int]:
    """One all-reduce, which makes NCCL connect; then what all ranks' logs say together."""
    dist.all_reduce(torch.ones(NUM_VALUES, device=ctx.device))
    ctx.synchronize()
    log = Path(folder, str(os.getpid()))
    every = ctx.all_gather(paths_in(log.read_text()) if log.exists() else {})
    return dict(sorted(sum(map(Counter, every), Counter[str]()).items()))
