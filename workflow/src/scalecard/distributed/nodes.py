"""The nodes that one job spans, and the rendezvous of each launch of ranks over them, which may fail.

The job's command runs once on each node (jobs/every_node.py starts it), and all nodes go through the same launches in
the same order. The first node leads: it keeps the store at which they meet, measures what stays within a node, and
writes the result.

    node 0   | in-node launches ... | launch 1 | launch 2 |  write the result
    node 1   |        waits         | launch 1 | launch 2 |

PyTorch is imported where ranks are launched or nodes meet: what starts the processes that measure does neither.

Source of the method: torch.distributed.run with the c10d rendezvous, one agent per node.
"""

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import psutil

from scalecard.distributed import Layout
from scalecard.hardware import host
from scalecard.records.record import Reason, Record

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore
    from torch.distributed.launcher.api import LaunchConfig

# How long to wait for the others in any one operation.
TIMEOUT = timedelta(seconds=float(os.environ.get("SCALECARD_TIMEOUT", 120)))
GRACE = timedelta(seconds=10)  # for the other nodes to report how they failed, once one has
JOIN = 1.5 * TIMEOUT + GRACE  # for the other nodes to arrive: they may first have waited for a lost rank
WHOLE_JOB = timedelta(days=7)


@dataclass(frozen=True)
class Nodes:
    """`count` nodes, of which this is number `index`; they meet at the first one's `address` and `port`."""

    count: int = 1
    index: int = 0
    address: str = "127.0.0.1"
    port: int = 0

    @property
    def leads(self) -> bool:
        """Whether this is the first node, which writes the result."""
        return self.index == 0

    @cached_property
    def store(self) -> "TCPStore":
        """This process's connection to the store of the first node."""
        return self.opened_store(keep=False)

    def opened_store(self, *, keep: bool) -> "TCPStore":
        """A connection to the store, or the store itself, which this process is to `keep`."""
        from torch._C._distributed_c10d import TCPStore

        return TCPStore(self.address, self.port, is_master=keep, timeout=TIMEOUT, wait_for_workers=False)

    def use_network(self) -> str:
        """Set gloo's interface, unless already set, to the one towards the first node; return our address there.

        NCCL chooses its own, and prefers InfiniBand.
        """
        address = host.address_towards(self.address)
        for name, own in psutil.net_if_addrs().items():
            if any(a.address == address for a in own):
                os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        return address

    def publish(self, key: str, value: Any) -> None:
        """Put a JSON value into the store for the other nodes."""
        self.store.set(f"{key} {self.index}", json.dumps(value))

    def gathered(self, key: str, value: Any, *, within: timedelta = TIMEOUT) -> dict[int, Any]:
        """On the first of several nodes, the value of each one by its index; elsewhere, and of one alone, nothing."""
        if self.count > 1:
            self.publish(key, value)
        return self.collect(key, within=within) if self.count > 1 and self.leads else {}

    def collect(self, key: str, *, within: timedelta) -> dict[int, Any]:
        """Each node's published value by node index; nodes that publish nothing in time are absent."""
        from torch.distributed import DistStoreError

        values = {}
        for index in range(self.count):
            try:
                self.store.wait([f"{key} {index}"], within)
            except DistStoreError:
                continue
            values[index] = json.loads(self.store.get(f"{key} {index}"))
        return values


@cache
def here() -> Nodes:
    """The nodes of this job, from the environment that jobs/every_node.py sets; one node if nothing is set."""
    if "SCALECARD_RENDEZVOUS" not in os.environ:
        return Nodes()
    address, port = os.environ["SCALECARD_RENDEZVOUS"].rsplit(":", 1)
    return Nodes(int(os.environ["SCALECARD_NODES"]), int(os.environ["SCALECARD_NODE"]), address, int(port))


@contextmanager
def keep_store(nodes: Nodes) -> Iterator[None]:
    """While this runs, the first of several nodes keeps the store."""
    kept = nodes.opened_store(keep=True) if nodes.count > 1 and nodes.leads else None
    try:
        yield
    finally:
        del kept


@contextmanager
def first_node_first(what: str) -> Iterator[None]:
    """Run the body on the first node, then on the others: for a download into a folder that they share."""
    nodes = here()
    if not nodes.leads:
        nodes.store.wait([f"{what} 0"], WHOLE_JOB)
    yield
    if nodes.count > 1:
        nodes.publish(what, True)


class RanksFailed(RuntimeError):
    """A rank's own code failed; the message names the rank and its error.

    `records` are those that rank 0 had yielded before, and `doing` is what the ranks had begun, by its name.
    """

    def __init__(self, message: str, reason: Reason = Reason.ERROR) -> None:
        super().__init__(message)
        self.reason, self.records, self.doing = reason, list[Record](), ""


class RankLost(RanksFailed):
    """A rank was killed, or did not answer the others within the timeout; the message names it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Reason.LOST)


@dataclass(frozen=True)
class Failure:
    """How the launch failed on one node, and which ranks were there.

    `reason` is that of its error, or LOST of a rank that was killed. `about_others`: the rank that failed was waiting
    for another one. `silent` did not answer it and left no word, and `stopped` had been stopped by a signal.
    """

    text: str
    time: int
    ranks: list[int]
    about_others: bool
    reason: Reason = Reason.ERROR
    silent: list[int] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Rendezvous:
    """Where the agents of one launch find one another: on this node only, or at the first node's store."""

    layout: Layout
    run_id: str
    nodes: Nodes

    @classmethod
    def arrive(cls, layout: Layout) -> "Rendezvous | None":
        """None if this node does not take part. The others wait here until the first node comes to this launch."""
        nodes = here()
        if layout.nodes == 1:
            return cls(layout, uuid.uuid4().hex, Nodes()) if nodes.leads else None
        if layout.nodes > nodes.count:
            raise ValueError(f"{layout}: this job has {nodes.count}; start it with scalecard.jobs.every_node")
        run_id = f"launch {nodes.store.add(f'launches of {nodes.index}', 1)}"
        if nodes.index >= layout.nodes:
            return None
        if nodes.store.check(["given up"]):
            raise RankLost(nodes.store.get("given up").decode())
        nodes.publish(f"{run_id} arrived", True)
        nodes.store.wait([f"{run_id} arrived 0"], WHOLE_JOB)
        return cls(layout, run_id, nodes)

    def config(self, logs: str) -> "LaunchConfig":
        """One agent per node. The store is the first node's or, on a single node, the agent's own.

        The agent's own files go to the folder `logs`: without one it leaves a folder behind for every launch.
        """
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
        from torch.distributed.launcher.api import LaunchConfig

        alone = self.layout.nodes == 1
        options = {"join_timeout": int(JOIN.total_seconds()), **({} if alone else {"is_host": False})}
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
            published = self.nodes.collect(f"{self.run_id} failed", within=GRACE)
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
            return RankLost(text) if first.reason == Reason.LOST else RanksFailed(text, Reason(first.reason))
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
        text = f"of {self.layout}, none could start: {who} (waited {JOIN.total_seconds():g} s)"
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
