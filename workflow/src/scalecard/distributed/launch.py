"""Rank processes, started by torch.distributed.run's elastic agent on one or several nodes: NCCL on GPUs, gloo on CPUs.

The rendezvous and the process group always have a timeout, and a rank dies with the process that launched it, so
nothing outlives a killed measurement.
"""

import importlib
import logging
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher.api import elastic_launch

from scalecard import progress
from scalecard.distributed.context import join
from scalecard.distributed.layout import Layout
from scalecard.distributed.nodes import TIMEOUT
from scalecard.distributed.notes import Notes
from scalecard.distributed.rendezvous import RanksFailed, Rendezvous
from scalecard.hardware.machine import Machine
from scalecard.records.record import Case, Record, Unit

RANK_SERVER = "scalecard.distributed.rank_server"  # imported by that process and, there, by the ranks alone


def launch_and_record(
    function: Callable[..., Iterator[Record]],
    *args: Any,
    layout: Layout,
    machine: Machine,
    cases: Sequence[Case],
    metric: str,
    unit: Unit = "s",
    devices_each: int = 1,
    then: Sequence[tuple[Case, str]] = (),
) -> list[Record]:
    """The records that rank 0 yields. If a rank fails or is lost, those that came before, and a failed record of each
    of `cases` that was not done, in their order, which says which rank it was and how.

    `then` are further cases, which come after these, with their metrics. No records on a node that does not take part.
    """
    try:
        records: list[list[Record]] = launch(function, *args, layout=layout, machine=machine, devices_each=devices_each)
    except RanksFailed as error:
        progress.say(f"failed: {error}")
        failed = partial(Record.failed, note=str(error), reason=error.reason, unit=unit)
        wanted = [*((case, metric) for case in cases), *then]
        left = _not_done(wanted, error.records)
        return [*error.records, *(failed(case, metric=of) for case, of in left)]
    return records[0] if records else []


def _not_done(wanted: Sequence[tuple[Case, str]], records: Sequence[Record]) -> list[tuple[Case, str]]:
    """Those without a record of their own, from the last one on that records with more axes belong to."""

    def has(case: Case, metric: str) -> bool:
        return any(record.metric == metric and record.matches(**case) for record in records)

    begun = [place for place, one in enumerate(wanted) if has(*one)]
    done = [(record.case, record.metric) for record in records]
    return [one for one in wanted[max(begun, default=0) :] if one not in done]


def launch(
    function: Callable[..., Any],
    *args: Any,
    layout: Layout,
    machine: Machine,
    devices_each: int = 1,
    timeout: timedelta = TIMEOUT,
) -> list[Any]:
    """Run function(context, *args) on the ranks of this layout; return what each rank of this node returned.

    Records that it yields are returned as a list. Over several nodes each rank returns rank 0's value. On a node that
    does not take part the list is empty. `function` and `args` are pickled. RanksFailed names the first rank that
    failed and its error, and has the records that rank 0 had yielded; RankLost the rank that was killed or did not
    answer. `timeout` is how long a rank waits for the others in any one operation.
    """
    meeting = Rendezvous.arrive(layout)
    if not meeting:
        return []
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # each rank prints its own traceback
    with tempfile.TemporaryDirectory(prefix="scalecard-ranks-") as folder:
        notes = Notes(Path(folder))
        multiprocessing.set_forkserver_preload([RANK_SERVER, function.__module__])
        start = elastic_launch(meeting.config(logs=folder), _main)
        try:
            returned = start(function, args, machine, dict(os.environ), notes, timeout, layout, devices_each)
        except ChildFailedError as error:
            failure = meeting.failure(notes.failure(error, nccl=not machine.emulated), timeout)
            failure.records = notes.journal.read()
            raise failure from error
        except RendezvousError as error:
            raise meeting.missing_nodes_error() from error
    return [returned[rank] for rank in sorted(returned)]


def _main(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    machine: Machine,
    environment: dict[str, str],
    notes: Notes,
    timeout: timedelta,
    layout: Layout,
    devices_each: int,
) -> Any:
    """Runs in each rank process. Its error goes to its notes with the time, so that the first is known."""
    importlib.import_module(RANK_SERVER).become_rank(environment)
    rank = int(os.environ["RANK"])
    progress.inherit(quiet=rank != 0)
    notes.begin(rank)
    try:
        context = join(machine, timeout, layout, devices_each)
        value = function(context, *args)
        if isinstance(value, Iterator):
            value = notes.journal.keep(value) if rank == 0 else list(value)
        return value if layout.nodes == 1 else context.all_gather(value)[0]
    except Exception as error:
        notes.leave(error, rank)
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
