"""What the ranks of a launch write down for the process that launched them: that they began, and how they failed.

    began.RANK     the process ID
    failed.RANK    the error, when, whether it says that another rank did not answer, and which ranks were stopped then
    records        what rank 0 has yielded so far

A rank that was killed leaves no second note, and makes those that wait for it fail as well.
"""

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from scalecard.distributed.rendezvous import Failure
from scalecard.hardware import processes
from scalecard.hardware.failures import reason_of
from scalecard.records.journal import Journal
from scalecard.records.record import Reason
from scalecard.records.redact import anonymous

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

    def leave(self, error: Exception, rank: int) -> None:
        """Called by a rank that fails."""
        text, *_ = str(error).split("\nException raised from")  # C++ adds its own stack
        said = f"{type(error).__name__}: {text}"
        others = isinstance(error, dist.DistNetworkError | dist.DistStoreError) or any(
            w in said.lower() for w in ABOUT_OTHERS
        )
        facts = {"time": time.time_ns(), "rank": rank, "error": anonymous(said), "about_others": others}
        facts["reason"] = reason_of(error)
        stopped = processes.stopped_siblings() if others else []
        facts["stopped"] = [rank for rank, pid in self._began().items() if pid in stopped]
        (self.folder / f"failed.{rank}").write_text(json.dumps(facts))
        for pid in stopped:  # the launcher's SIGTERM would not reach it, and it would wait for that for 30 s
            processes.kill(pid)
        if others:
            time.sleep(1)  # so that the launcher, which polls every 0.1 s, sees the rank that died before those waiting

    def failure(self, error: ChildFailedError, *, nccl: bool) -> Failure:
        """The rank of this node that failed first, and those that did not answer it."""
        rank, failed = error.get_first_failure()
        ranks = sorted(self._began())
        notes = self._failed()
        stopped = sorted({other for note in notes.values() for other in note["stopped"]})
        waited = any(note["about_others"] for note in notes.values())
        if rank not in notes and not (waited and (rank in stopped or rank not in ranks)):
            if nccl and failed.exitcode == -signal.SIGABRT:  # what NCCL's watchdog does to a rank that waits too long
                how = f"rank {rank} was aborted by NCCL while it waited"
                silent = [other for other in ranks if other != rank] if len(ranks) == 2 else []
                return Failure(how, time.time_ns(), ranks, about_others=True, lost=True, silent=silent)
            how = f"was killed by signal {-failed.exitcode}" if failed.exitcode < 0 else f"ended ({failed.exitcode})"
            return Failure(f"rank {rank} {how}", time.time_ns(), ranks, about_others=False, lost=True)
        first = min(notes.values(), key=lambda note: note["time"])
        waited = first["about_others"]
        return Failure(
            f"rank {first['rank']} failed: {first['error']}",
            first["time"],
            ranks,
            about_others=waited,
            lost=waited,
            reason=Reason(first["reason"]),
            silent=sorted(set(ranks) - set(notes)) if waited else [],
            stopped=stopped,
        )

    def _began(self) -> dict[int, int]:
        """The process IDs of the ranks that began."""
        return {int(path.suffix[1:]): int(path.read_text() or 0) for path in self.folder.glob("began.*")}

    def _failed(self) -> dict[int, dict[str, Any]]:
        return {int(path.suffix[1:]): json.loads(path.read_text()) for path in self.folder.glob("failed.*")}
