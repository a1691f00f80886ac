"""Rank processes, started by torch.distributed.run's elastic agent on one or several nodes: NCCL on GPUs, gloo on CPUs.

The rendezvous and the process group always have a timeout, and a rank dies with the process that launched it, so
nothing outlives a killed measurement. What the ranks of a node write down for it, in a folder:

    began.RANK     the process ID
    doing.RANK     what it has begun, by the name that it gave; empty if nothing that a failure would be blamed on
    failed.RANK    the error, when, whether it says that another rank did not answer, and which ranks were stopped then
    records        what rank 0 has yielded so far
    spent          what rank 0 spent its seconds on, once it ends
    crashed.RANK   where each of its threads was when it crashed; empty if it did not

A rank that was killed leaves no failed.RANK, and makes those that wait for it fail as well.
"""

import faulthandler
import json
import logging
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher.api import elastic_launch

from scalecard import progress, time_spent
from scalecard.distributed import Layout
from scalecard.distributed.context import RankContext, join
from scalecard.distributed.nodes import TIMEOUT, Failure, RanksFailed, Rendezvous
from scalecard.hardware import isolation, vendors
from scalecard.hardware.failures import reason_of
from scalecard.hardware.fresh_process import RANK_SERVER
from scalecard.hardware.machine import Machine
from scalecard.records.atomic import write_atomically
from scalecard.records.axes import Case
from scalecard.records.fields import anonymous
from scalecard.records.journal import Journal, measured_once
from scalecard.records.record import Reason, Record, Unit
from scalecard.time_spent import Activity, spent_on

ENOUGH = 2**22  # float32 values, 16 MiB: for every channel of the library that sends them
# Seconds in which a launcher, which polls every 0.1 s but may be short of cores, sees a rank that died before it sees
# those that waited for it, and ends them.
HEARD = 5
# Words in a rank's error that mean that another rank did not answer.
ABOUT_OTHERS = ("timed out", "timeout", "connection closed", "connection reset", "broken pipe", "remote process exited")


@dataclass(frozen=True)
class Notes:
    """The notes of the ranks of one node, in a folder."""

    folder: Path

    @property
    def journal(self) -> Journal:
        """Of rank 0."""
        return Journal(self.folder / "records")

    def begin(self, rank: int) -> None:
        """Called by a rank when it starts."""
        (self.folder / f"began.{rank}").write_text(str(os.getpid()))

    def doing(self, rank: int, name: str) -> None:
        """Called by a rank when it begins something."""
        (self.folder / f"doing.{rank}").write_text(name)

    def leave(self, error: Exception, rank: int) -> None:
        """Called by a rank that fails."""
        text, *_ = str(error).split("\nException raised from")  # C++ adds its own stack
        said = f"{type(error).__name__}: {text}"
        others = isinstance(error, dist.DistNetworkError | dist.DistStoreError) or any(
            words in said.lower() for words in ABOUT_OTHERS
        )
        facts = {"time": time.time_ns(), "rank": rank, "error": anonymous(said), "about_others": others}
        facts["reason"] = reason_of(error)
        stopped = isolation.stopped_siblings() if others else []
        facts["stopped"] = [rank for rank, pid in self._began().items() if pid in stopped]
        (self.folder / f"failed.{rank}").write_text(json.dumps(facts))
        for pid in stopped:  # the launcher's SIGTERM would not reach it, and it would wait for that for 30 s
            isolation.kill(pid)
        if others:
            time.sleep(HEARD)

    def keep_time_spent(self) -> None:
        """Called by rank 0 when it ends; the others work beside it."""
        write_atomically(self.folder / "spent", json.dumps(time_spent.take()))

    def time_spent(self) -> dict[str, float]:
        """What rank 0 spent its seconds on; empty if it was killed, or is on another node."""
        kept = self.folder / "spent"
        spent: dict[str, float] = json.loads(kept.read_text()) if kept.exists() else {}
        return spent

    def failure(self, error: ChildFailedError, *, nccl: bool) -> Failure:
        """The rank of this node that failed first, and those that did not answer it."""
        rank, failed = error.get_first_failure()
        ranks = sorted(self._began())
        notes: dict[int, dict[str, Any]] = {
            int(path.suffix[1:]): json.loads(path.read_text()) for path in self.folder.glob("failed.*")
        }
        stopped = sorted({other for note in notes.values() for other in note["stopped"]})
        waited = any(note["about_others"] for note in notes.values())
        if rank not in notes and not (waited and (rank in stopped or rank not in ranks)):
            if nccl and failed.exitcode == -signal.SIGABRT:  # what NCCL's watchdog does to a rank that waits too long
                how = f"rank {rank} was aborted by NCCL while it waited"
                silent = [other for other in ranks if other != rank] if len(ranks) == 2 else []
                return Failure(how, time.time_ns(), ranks, about_others=True, reason=Reason.LOST, silent=silent)
            how = f"was killed by signal {-failed.exitcode}" if failed.exitcode < 0 else f"ended ({failed.exitcode})"
            how = f"rank {rank} {how}{self._place_of_crash(rank)}"
            return Failure(how, time.time_ns(), ranks, about_others=False, reason=Reason.LOST)
        first = min(notes.values(), key=lambda note: note["time"])
        waited = first["about_others"]
        return Failure(
            f"rank {first['rank']} failed: {first['error']}",
            first["time"],
            ranks,
            about_others=waited,
            reason=Reason(first["reason"]),
            silent=sorted(set(ranks) - set(notes)) if waited else [],
            stopped=stopped,
        )

    def _place_of_crash(self, rank: int) -> str:
        """', in FUNCTION (FILE, line N)' if the rank crashed, by its own note, which goes to the log."""
        note = self.folder / f"crashed.{rank}"
        stacks = note.read_text() if note.exists() else ""
        print(stacks, end="", file=sys.stderr, flush=True)
        frame = re.search(r'Current thread .*\n  File "(.*)", line (\d+) in (\S+)', stacks)
        return f", in {frame[3]} ({Path(frame[1]).name}, line {frame[2]})" if frame else ""

    def begun(self) -> str:
        """What all ranks of this node were doing, by the name that they gave; '' if nothing, or not the same."""
        names = {path.read_text() for path in self.folder.glob("doing.*")}
        return names.pop() if len(names) == 1 else ""

    def _began(self) -> dict[int, int]:
        """The process IDs of the ranks that began."""
        return {int(path.suffix[1:]): int(path.read_text() or 0) for path in self.folder.glob("began.*")}


def transport_paths(machine: Machine, layout: Layout) -> dict[str, int]:
    """Channels by the path that the ranks' library says it sends on, in one untimed start of all ranks.

    Empty on a node that does not take part. RanksFailed and RankLost as in `launch`.
    """
    library, log = vendors.here().collectives, tempfile.TemporaryDirectory(prefix="scalecard-ranks-")
    with log as folder, isolation.variables(library.logging_to(Path(folder))):
        found: list[dict[str, int]] = launch(_connect, folder, layout=layout, machine=machine)
    return found[0] if found else {}


def _connect(ctx: RankContext, folder: str) -> dict[str, int]:
    """One all-reduce, which makes the library connect; then what all ranks' logs say together."""
    dist.all_reduce(torch.ones(ENOUGH, device=ctx.device))
    ctx.synchronize()
    library, log = vendors.here().collectives, Path(folder, str(os.getpid()))
    every = ctx.all_gather(library.paths_in(log.read_text()) if log.exists() else {})
    return dict(sorted(sum(map(Counter, every), Counter[str]()).items()))


def launch_and_record(
    function: Callable[..., Iterator[Record]],
    *args: Any,
    layout: Layout,
    machine: Machine,
    cases: Sequence[tuple[Case, str]],
    unit: Unit = "s",
    devices_each: int = 1,
) -> list[Record]:
    """The records that rank 0 yields. If a rank fails or is lost in what has begun by a name, the ranks start again,
    and do that no more; otherwise the records that came before, and a failed record of each of `cases` that was not
    done, which says which rank it was and how.

    `cases` have their metrics, and the order in which they are measured. No records on a node that does not take part.
    They are a group: what an earlier run kept of it is not measured again.
    """

    failed, before = dict[str, tuple[str, Reason]](), list[Record]()

    def launched() -> Iterator[Record]:
        try:
            found = launch(function, *args, layout=layout, machine=machine, devices_each=devices_each, failed=failed)
        except RanksFailed as error:
            progress.say(f"failed: {error}")
            if error.doing and error.doing not in failed:
                failed[error.doing] = str(error), error.reason
                before.extend(record for record in error.records if record.status == "ok")
                yield from launched()
                return
            absent = partial(Record.failed, note=str(error), reason=error.reason, unit=unit)
            left = _not_done(cases, error.records)
            found = [[*error.records, *(absent(case, metric=of) for case, of in left)]]
        yield from _with_earlier(before, found[0]) if found else ()

    return [*measured_once([function.__qualname__, str(layout), cases], launched())]


def _with_earlier(earlier: Sequence[Record], records: Sequence[Record]) -> Iterator[Record]:
    """The records, with what an earlier launch has measured in the place of what these had no more time for."""
    measured = [(record.metric, record.case) for record in records if record.status == "ok"]
    kept = [record for record in earlier if (record.metric, record.case) not in measured]
    there = [(record.metric, record.case) for record in kept]
    yield from kept
    yield from (record for record in records if (record.metric, record.case) not in there)


def _not_done(wanted: Sequence[tuple[Case, str]], records: Sequence[Record]) -> list[tuple[Case, str]]:
    """Those without a record of their own, from the last one on that records with more axes belong to."""

    def has(case: Case, metric: str) -> bool:
        return any(record.metric == metric and record.matches(**case) for record in records)

    begun = [place for place, one in enumerate(wanted) if has(*one)]
    done = [(record.case, record.metric) for record in records]
    return [one for one in wanted[max(begun, default=0) :] if one not in done]


@spent_on(Activity.LAUNCH)
def launch(
    function: Callable[..., Any],
    *args: Any,
    layout: Layout,
    machine: Machine,
    devices_each: int = 1,
    timeout: timedelta = TIMEOUT,
    failed: Mapping[str, tuple[str, Reason]] | None = None,
) -> list[Any]:
    """Run function(context, *args) on the ranks of this layout; return what each rank of this node returned.

    Records that it yields are returned as a list. Over several nodes each rank returns rank 0's value. On a node that
    does not take part the list is empty. `function` and `args` are pickled. RanksFailed names the first rank that
    failed and its error, and has the records that rank 0 had yielded; RankLost the rank that was killed or did not
    answer. `timeout` is how long a rank waits for the others in any one operation. What `failed` before is not done.
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
            joining = partial(join, machine, timeout, layout, devices_each, failed)
            returned = start(function, args, joining, dict(os.environ), notes)
        except ChildFailedError as error:
            failure = meeting.failure(notes.failure(error, nccl=not machine.emulated), timeout)
            failure.records = notes.journal.read()
            # Other nodes do not know it, and would not start again.
            failure.doing = "" if layout.nodes > 1 else notes.begun()
            raise failure from error
        except RendezvousError as error:
            raise meeting.missing_nodes_error() from error
        finally:
            time_spent.add(notes.time_spent())
    return [returned[rank] for rank in sorted(returned)]


def _main(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    joining: Callable[[], RankContext],
    environment: dict[str, str],
    notes: Notes,
) -> Any:
    """Runs in each rank process. Its error goes to its notes with the time, so that the first is known."""
    from scalecard.distributed import rank_server  # here alone, where a fork server has imported it

    rank_server.become_rank(environment)
    rank = int(os.environ["RANK"])
    progress.inherit(quiet=rank != 0)
    notes.begin(rank)
    faulthandler.enable((notes.folder / f"crashed.{rank}").open("w"))
    try:
        context = joining()
        context.begin = partial(notes.doing, rank)
        value = function(context, *args)
        if isinstance(value, Iterator):
            value = notes.journal.keep(value) if rank == 0 else list(value)
        return context.all_gather(value)[0] if context.spans_nodes else value
    except Exception as error:
        notes.leave(error, rank)
        raise
    finally:
        if rank == 0:
            notes.keep_time_spent()
        if dist.is_initialized():
            dist.destroy_process_group()
