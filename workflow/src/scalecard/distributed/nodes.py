"""The nodes that one job spans: which one this is, where they meet, and over which network interface.

The job's command runs once on each node (jobs/every_node.py starts it), and all nodes go through the same launches in
the same order. The first node leads: it keeps the store at which they meet, measures what stays within a node, and
writes the result.

    node 0   | in-node launches ... | launch 1 | launch 2 |  write the result
    node 1   |        waits         | launch 1 | launch 2 |

Source of the method: torch.distributed.run with the c10d rendezvous, one agent per node.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, cached_property
from typing import Any

import psutil
from torch._C._distributed_c10d import TCPStore
from torch.distributed import DistStoreError

from scalecard.hardware import host

TIMEOUT = timedelta(
    seconds=float(os.environ.get("SCALECARD_TIMEOUT", 120))
)  # how long to wait for the others in any one operation
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
    def store(self) -> TCPStore:
        """This process's connection to the store of the first node."""
        return TCPStore(self.address, self.port, is_master=False, timeout=TIMEOUT, wait_for_workers=False)

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

    def collect(self, key: str, *, within: timedelta) -> dict[int, Any]:
        """Each node's published value by node index; nodes that publish nothing in time are absent."""
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
    kept = None
    if nodes.count > 1 and nodes.leads:
        kept = TCPStore(nodes.address, nodes.port, is_master=True, timeout=TIMEOUT, wait_for_workers=False)
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
