"""Rank processes: started by torch.distributed.run's elastic agent, one a device, NCCL on GPUs and gloo on CPUs.

The process group always has a timeout, and a rank dies with the process that launched it, so that nothing outlives a
killed measurement.
"""

import ctypes
import logging
import os
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from scalecard import progress
from scalecard.devices import threads_each
from scalecard.machine import Machine

TIMEOUT = timedelta(seconds=120)


@dataclass
class RankContext:
    """What a rank function gets: its device, its rank, the world size; the Ranks of measure.py."""

    rank: int
    world_size: int
    device: torch.device
    control: dist.ProcessGroup

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def barrier(self) -> None:
        dist.barrier(group=self.control)

    def maximum(self, values: Sequence[float]) -> list[float]:
        """The element-wise maximum over ranks, over gloo: it must not disturb NCCL's stream."""
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self.control)
        return [float(v) for v in tensor]

    def everyone(self, value: Any) -> list[Any]:
        """Every rank's value, in rank order."""
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.control)
        return values


class RanksFailed(RuntimeError):
    """A rank died or timed out; the message names it."""


def launch(function: Callable[..., Any], *args: Any, num_ranks: int, machine: Machine) -> list[Any]:
    """Run function(context, *args) on `num_ranks` ranks of this machine and return what each rank returned.

    `function` and `args` travel by pickle. RanksFailed names the first rank that failed and its error.
    """
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_ranks,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        max_restarts=0,
        monitor_interval=0.1,
        start_method="spawn",
    )
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # each rank prints its own traceback
    with tempfile.TemporaryDirectory(prefix="scalecard-ranks-") as errors:
        try:
            returned = elastic_launch(config, _main)(function, args, machine, os.getpid(), errors)
            return [returned[rank] for rank in range(num_ranks)]
        except ChildFailedError as error:
            told = sorted(path.read_text() for path in Path(errors).iterdir())
            first = told[0].split(" ", 1)[1] if told else f"rank {error.get_first_failure()[0]} was killed"
            raise RanksFailed(f"of {num_ranks} ranks, {first}") from error


def _main(function: Callable[..., Any], args: tuple[Any, ...], machine: Machine, parent: int, errors: str) -> Any:
    """What each rank process runs. Its error goes to the folder `errors` with the time, so the first can be told."""
    _die_with(parent)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    progress.join("ranks" if world_size > 1 else "rank", quiet=rank != 0)
    cuda = machine.kind == "cuda"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(threads_each(machine))
    dist.init_process_group("nccl" if cuda else "gloo", timeout=TIMEOUT, device_id=device if cuda else None)
    try:
        control = dist.new_group(backend="gloo", timeout=TIMEOUT)
        assert isinstance(control, dist.ProcessGroup), "every rank is a member"
        return function(RankContext(rank, world_size, device, control), *args)
    except Exception as error:
        Path(errors, str(rank)).write_text(f"{time.time_ns()} rank {rank} failed: {type(error).__name__}: {error}")
        raise
    finally:
        dist.destroy_process_group()


def _die_with(parent: int) -> None:
    """Ask the kernel to kill this rank when its launcher dies: an orphan would disturb the next measurement."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
