"""Rank processes, started by torch.distributed.run's elastic agent on one node or several: NCCL on GPUs, gloo on CPUs.

The rendezvous and the process group always have a timeout, and a rank dies with the process that launched it, so that
nothing outlives a killed measurement.
"""

import json
import logging
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher.api import elastic_launch

from scalecard import host, progress
from scalecard.devices import threads_each
from scalecard.machine import Machine
from scalecard.meeting import Failure, Layout, Meeting, RankLost
from scalecard.nodes import TIMEOUT
from scalecard.schema import Case, Record

OTHERS = ("timed out", "timeout", "connection closed", "connection reset", "broken pipe", "remote process exited")


@dataclass
class RankContext:
    """What a rank function gets: its device, its rank, the world size; the Ranks of measure.py."""

    rank: int
    world_size: int
    device: torch.device
    control: dist.ProcessGroup
    layout: Layout
    timeout: timedelta

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def spans_nodes(self) -> bool:
        return self.layout.nodes > 1

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def new_group(self) -> dist.ProcessGroup:
        """A further process group of all ranks, with the same timeout."""
        group = dist.new_group(timeout=self.timeout)
        assert isinstance(group, dist.ProcessGroup), "every rank is a member"
        return group

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


def measured(
    function: Callable[..., list[Record]],
    *args: Any,
    layout: Layout,
    machine: Machine,
    case: Case,
    metric: str,
    devices_each: int = 1,
) -> list[Record]:
    """The records of rank 0, or, where a rank was lost, one failed record of this case that says which and how.

    None on a node that does not take part.
    """
    try:
        records: list[list[Record]] = launch(function, *args, layout=layout, machine=machine, devices_each=devices_each)
    except RankLost as error:
        progress.say(f"failed: {error}")
        return [Record(case={**layout.case, **case}, metric=metric, unit="s", status="failed", note=str(error))]
    return records[0] if records else []


def launch(
    function: Callable[..., Any],
    *args: Any,
    layout: Layout,
    machine: Machine,
    devices_each: int = 1,
    timeout: timedelta = TIMEOUT,
) -> list[Any]:
    """Run function(context, *args) on the ranks of this layout and return what each rank of this node returned.

    Over several nodes each returns what rank 0 did; on a node that does not take part the list is empty. `function` and
    `args` travel by pickle. RanksFailed names the first rank that failed and its error; RankLost where that was no
    error of its code. `timeout` is how long a rank waits for the others in any one operation.
    """
    meeting = Meeting.arrive(layout)
    if not meeting:
        return []
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # each rank prints its own traceback
    with tempfile.TemporaryDirectory(prefix="scalecard-ranks-") as told:
        start = elastic_launch(meeting.config(), _main)
        try:
            returned = start(function, args, machine, os.getpid(), told, timeout, layout, devices_each)
        except ChildFailedError as error:
            raise meeting.failure(_failure(error, Path(told), nccl=machine.kind == "cuda"), timeout) from error
        except RendezvousError as error:
            raise meeting.nobody() from error
    return [returned[rank] for rank in sorted(returned)]


def _failure(error: ChildFailedError, told: Path, *, nccl: bool) -> Failure:
    """Which rank of this node failed first: one that was killed told nothing, and makes the others fail as well."""
    rank, failure = error.get_first_failure()
    ranks = sorted(int(path.suffix[1:]) for path in told.glob("began.*"))
    if not Path(told, f"failed.{rank}").exists():
        if nccl and failure.exitcode == -signal.SIGABRT:  # what NCCL's watchdog does to a rank that waits for too long
            how = f"rank {rank} was aborted by NCCL while it waited"
            return Failure(how, time.time_ns(), ranks, about_others=True, lost=True)
        how = f"was killed by signal {-failure.exitcode}" if failure.exitcode < 0 else f"ended ({failure.exitcode})"
        return Failure(f"rank {rank} {how}", time.time_ns(), ranks, about_others=False, lost=True)
    first = min((json.loads(path.read_text()) for path in told.glob("failed.*")), key=lambda told: told["time"])
    text = f"rank {first['rank']} failed: {first['error']}"
    return Failure(text, first["time"], ranks, first["about_others"], lost=first["about_others"])


def _main(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    machine: Machine,
    parent: int,
    told: str,
    timeout: timedelta,
    layout: Layout,
    devices_each: int,
) -> Any:
    """What each rank process runs. Its error goes to the folder `told` with the time, so the first can be told."""
    host.die_with(parent)
    rank = int(os.environ["RANK"])
    progress.join("ranks" if layout.ranks > 1 else "rank", quiet=rank != 0)
    Path(told, f"began.{rank}").touch()
    try:
        context = _join(machine, timeout, layout, devices_each)
        value = function(context, *args)
        return value if layout.nodes == 1 else context.everyone(value)[0]
    except Exception as error:
        _tell(error, rank, Path(told))
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _join(machine: Machine, timeout: timedelta, layout: Layout, devices_each: int) -> RankContext:
    """This process as a rank: its device, and the process groups."""
    cuda = machine.kind == "cuda"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) * devices_each) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(threads_each(machine))
    bound = device if cuda and devices_each == 1 else None  # a bound group refuses a rank's other devices
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timeout, device_id=bound)
    control = dist.new_group(backend="gloo", timeout=timeout)
    assert isinstance(control, dist.ProcessGroup), "every rank is a member"
    return RankContext(dist.get_rank(), dist.get_world_size(), device, control, layout, timeout)


def _tell(error: Exception, rank: int, told: Path) -> None:
    """Leave word of an error, and whether it says that another rank did not answer."""
    text, *_ = str(error).split("\nException raised from")  # C++ adds its own stack
    said = f"{type(error).__name__}: {text}"
    others = isinstance(error, dist.DistNetworkError | dist.DistStoreError) or any(w in said.lower() for w in OTHERS)
    facts = {"time": time.time_ns(), "rank": rank, "error": said, "about_others": others}
    Path(told, f"failed.{rank}").write_text(json.dumps(facts))
    if others:
        time.sleep(1)  # the launcher, which looks every 0.1 s, sees the rank that died before the ones that waited
