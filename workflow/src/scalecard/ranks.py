"""Rank processes: started by torch.distributed.run's elastic agent, one a device, NCCL on GPUs and gloo on CPUs.

The process group always has a timeout, and a rank dies with the process that launched it, so that nothing outlives a
killed measurement.
"""

import json
import logging
import os
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

from scalecard import host, progress
from scalecard.devices import threads_each
from scalecard.machine import Machine
from scalecard.schema import Case, Record

TIMEOUT = timedelta(seconds=120)


@dataclass
class RankContext:
    """What a rank function gets: its device, its rank, the world size; the Ranks of measure.py."""

    rank: int
    world_size: int
    device: torch.device
    control: dist.ProcessGroup

    @property
    def leads(self) -> bool:
        return self.rank == 0

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
    """A rank's own code failed; the message names the rank and its error."""


class RankLost(RanksFailed):
    """A rank was killed, or did not answer the others within the timeout; the message names it."""


def measured(
    function: Callable[..., list[Record]], *args: Any, num_ranks: int, machine: Machine, case: Case, metric: str
) -> list[Record]:
    """The records of rank 0, or, where a rank was lost, one failed record of this case that says which and how."""
    try:
        records: list[Record] = launch(function, *args, num_ranks=num_ranks, machine=machine)[0]
    except RankLost as error:
        progress.say(f"failed: {error}")
        return [Record(case=case, metric=metric, unit="s", status="failed", note=str(error))]
    return records


def launch(
    function: Callable[..., Any], *args: Any, num_ranks: int, machine: Machine, timeout: timedelta = TIMEOUT
) -> list[Any]:
    """Run function(context, *args) on `num_ranks` ranks of this machine and return what each rank returned.

    `function` and `args` travel by pickle. RanksFailed names the first rank that failed and its error; RankLost where
    that was no error of its code. `timeout` is how long a rank waits for the others in any one operation.
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
            returned = elastic_launch(config, _main)(function, args, machine, os.getpid(), errors, timeout)
            return [returned[rank] for rank in range(num_ranks)]
        except ChildFailedError as error:
            raise _failure(error, num_ranks, Path(errors), timeout) from error


def _failure(error: ChildFailedError, num_ranks: int, told: Path, timeout: timedelta) -> RanksFailed:
    """Which rank failed first, and how: one that was killed told nothing, and makes the others fail as well."""
    rank, failure = error.get_first_failure()
    if not Path(told, str(rank)).exists():
        how = f"was killed by signal {-failure.exitcode}" if failure.exitcode < 0 else f"ended ({failure.exitcode})"
        return RankLost(f"of {num_ranks} ranks, rank {rank} {how}")
    first = min((json.loads(path.read_text()) for path in told.iterdir()), key=lambda told: told["time"])
    kind = RankLost if _is_about_others(first["error"]) else RanksFailed
    waited = f" (each waits {timeout.total_seconds():g} s for the others)" if kind is RankLost else ""
    return kind(f"of {num_ranks} ranks, rank {first['rank']} failed: {first['error']}{waited}")


def _is_about_others(error: str) -> bool:
    """Whether an error of gloo or NCCL says that another rank did not answer."""
    said = error.lower()
    return any(words in said for words in ("timed out", "timeout", "connection closed", "connection reset"))


def _main(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    machine: Machine,
    parent: int,
    errors: str,
    timeout: timedelta,
) -> Any:
    """What each rank process runs. Its error goes to the folder `errors` with the time, so the first can be told."""
    host.die_with(parent)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    progress.join("ranks" if world_size > 1 else "rank", quiet=rank != 0)
    cuda = machine.kind == "cuda"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(threads_each(machine))
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timeout, device_id=device if cuda else None)
    try:
        control = dist.new_group(backend="gloo", timeout=timeout)
        assert isinstance(control, dist.ProcessGroup), "every rank is a member"
        return function(RankContext(rank, world_size, device, control), *args)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        told = {"time": time.time_ns(), "rank": rank, "error": said}
        Path(errors, str(rank)).write_text(json.dumps(told))
        if _is_about_others(said):
            time.sleep(1)  # the launcher, which looks every 0.1 s, sees the rank that died before the ones that waited
        raise
    finally:
        dist.destroy_process_group()
