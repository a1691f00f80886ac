"""One launch of ranks over the nodes of a job: where its agents meet, and the error if they do not or a rank fails."""

import uuid
from dataclasses import asdict, dataclass, field
from datetime import timedelta

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher.api import LaunchConfig

from scalecard.distributed import nodes as job
from scalecard.distributed.layout import Layout
from scalecard.records.record import Reason, Record


class RanksFailed(RuntimeError):
    """A rank's own code failed; the message names the rank and its error.

    `records` are those that rank 0 had yielded before.
    """

    def __init__(self, message: str, reason: Reason = Reason.ERROR) -> None:
        super().__init__(message)
        self.reason, self.records = reason, list[Record]()


class RankLost(RanksFailed):
    """A rank was killed, or did not answer the others within the timeout; the message names it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Reason.LOST)


@dataclass(frozen=True)
class Failure:
    """How the launch failed on one node, and which ranks were there.

    `reason` is that of its error. `about_others`: the rank that failed was waiting for another one. `lost`: it was
    killed, or waited in vain. `silent` did not answer it and left no word, and `stopped` had been stopped by a signal.
    """

    text: str
    time: int
    ranks: list[int]
    about_others: bool
    lost: bool
    reason: Reason = Reason.ERROR
    silent: list[int] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Rendezvous:
    """Where the agents of one launch find one another: on this node only, or at the first node's store."""

    layout: Layout
    run_id: str
    nodes: job.Nodes

    @classmethod
    def arrive(cls, layout: Layout) -> "Rendezvous | None":
        """None if this node does not take part. The others wait here until the first node comes to this launch."""
        nodes = job.here()
        if layout.nodes == 1:
            return cls(layout, uuid.uuid4().hex, job.Nodes()) if nodes.leads else None
        if layout.nodes > nodes.count:
            raise ValueError(f"{layout}: this job has {nodes.count}; start it with scalecard.jobs.every_node")
        run_id = f"launch {nodes.store.add(f'launches of {nodes.index}', 1)}"
        if nodes.index >= layout.nodes:
            return None
        if nodes.store.check(["given up"]):
            raise RankLost(nodes.store.get("given up").decode())
        nodes.publish(f"{run_id} arrived", True)
        nodes.store.wait([f"{run_id} arrived 0"], job.WHOLE_JOB)
        return cls(layout, run_id, nodes)

    def config(self, logs: str) -> LaunchConfig:
        """One agent per node. The store is the first node's or, on a single node, the agent's own.

        The agent's own files go to the folder `logs`: without one it leaves a folder behind for every launch.
        """
        alone = self.layout.nodes == 1
        options = {"join_timeout": int(job.JOIN.total_seconds()), **({} if alone else {"is_host": False})}
        return LaunchConfig(
            min_nodes=self.layout.nodes,
            max_nodes=self.layout.nodes,
            nproc_per_node=self.layout.ranks // self.layout.nodes,
            run_id=self.run_id,
            rdzv_backend="c10d",
            rdzv_endpoint=f"{self.nodes.address}:{self.nodes.port}",
            rdzv_configs=options,
            local_addr=self.nodes.use_network() if not alone else "127.0.0.1",
            max_restarts=0,
            monitor_interval=0.1,
            start_method="forkserver",
            logs_specs=DefaultLogsSpecs(log_dir=logs),
        )

    def failure(self, ours: Failure, timeout: timedelta) -> RanksFailed:
        """The first failure on any node: a rank's own error, else a lost node or rank, else a rank that waited."""
        failures, silent = [ours], list[int]()
        if self.layout.nodes > 1:
            self.nodes.publish(f"{self.run_id} failed", asdict(ours))
            published = self.nodes.collect(f"{self.run_id} failed", within=job.GRACE)
            failures = [Failure(**published[index]) for index in sorted(published)]
            silent = sorted(set(range(self.layout.nodes)) - set(published))
        own = [failure for failure in failures if not failure.about_others]
        if silent and not own:
            seen = {rank for failure in failures for rank in failure.ranks}
            lost = [str(rank) for rank in range(self.layout.ranks) if rank not in seen]
            who = f"rank {lost[0]} was" if len(lost) == 1 else f"ranks {', '.join(lost)} were"
            return RankLost(f"of {self.layout}, {who} lost with node {', '.join(map(str, silent))} ({ours.text})")
        first = min(own or failures, key=lambda failure: failure.time)
        if not first.about_others:
            text = f"of {self.layout}, {first.text}"
            return RankLost(text) if first.lost else RanksFailed(text, Reason(first.reason))
        waited = f"each waits {timeout.total_seconds():g} s for the others"
        began = {rank for failure in failures for rank in failure.ranks}
        who = _who_is_silent(failures, sorted(set(range(self.layout.ranks)) - began))
        return RankLost(
            f"of {self.layout}, {who} ({first.text}; {waited})" if who else f"of {self.layout}, {first.text} ({waited})"
        )

    def missing_nodes_error(self) -> RankLost:
        """The error that names the nodes that never arrived; later launches raise it at once instead of waiting."""
        arrived = self.nodes.collect(f"{self.run_id} arrived", within=timedelta(seconds=1))
        missing = [str(index) for index in range(self.layout.nodes) if index not in arrived]
        who = f"node {', '.join(missing)} never arrived" if missing else "the nodes did not find each other"
        text = f"of {self.layout}, none could start: {who} (waited {job.JOIN.total_seconds():g} s)"
        self.nodes.store.set("given up", text)
        return RankLost(text)


def _who_is_silent(failures: list[Failure], never: list[int]) -> str:
    """'rank 1 did not answer: stopped by a signal'; empty if no rank can be named. `never` did not even begin."""
    stopped = sorted({rank for failure in failures for rank in failure.stopped})
    silent = stopped or never or sorted({rank for failure in failures for rank in failure.silent})
    if not silent:
        return ""
    who = f"{'rank' if len(silent) == 1 else 'ranks'} {', '.join(map(str, silent))} did not answer"
    return f"{who}: stopped by a signal" if stopped else who
