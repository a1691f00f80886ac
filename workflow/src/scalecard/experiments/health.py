"""Is every part of this machine as fast as its peers, and free of errors?

Each device multiplies matrices, uses its memory and exchanges data with the host, one after the other and then all at
once; each pair of devices copies, alone and while all others do; all devices work for a while, until heat shows; ranks
run the collectives of training, and nodes meet in pairs. Error counters are read before and after.

The answer would be wrong if one device stood for all (each has records of its own), if a slow part hid behind others
that work at the same time (each takes its own device's time, and is also measured alone), or if what was timed did
nothing (each result is compared first). Without GPUs, CPU workers stand in for devices, and share one memory.
"""

import base64
import os
import pickle
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import torch.distributed as dist

from scalecard import progress
from scalecard.benchmarks.machine import collectives, node_benchmarks
from scalecard.distributed import Layout, layouts, nodes
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch_and_record
from scalecard.hardware.failures import in_one_line, reason_of
from scalecard.hardware.machine import Machine
from scalecard.measuring.prepare import guarded, too_few_devices
from scalecard.measuring.spec import AtLeastTwo, ByteSizes, Positive
from scalecard.records.axes import Case
from scalecard.records.record import Reason, Record

LOST = Record.failed({"part": "node"}, "the node sent nothing of what it measured", reason=Reason.LOST)


@dataclass(frozen=True, kw_only=True)
class Spec(node_benchmarks.Amounts):
    nodes: Positive
    rounds: AtLeastTwo
    collective_bytes: ByteSizes
    name_hosts: bool

    def __post_init__(self) -> None:
        """Few rounds of everything in one process: a look at each part, not a precise figure of one."""
        few = replace(self.measure, min_rounds=self.rounds, max_rounds=self.rounds, min_seconds=0, processes=1)
        object.__setattr__(self, "measure", few)


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Every part of every node, then the collectives of all, and the nodes in pairs."""
    if spec.name_hosts:
        _name_hosts()
    mine = list[Record]()
    try:
        with node_benchmarks.watched() as counters:
            yield from _of_this_node(node_benchmarks.records(spec, machine), mine)
            yield from _collectives(spec, machine)
            if spec.nodes > 1:
                yield from _between_nodes(spec, machine)
            yield from _of_this_node(counters(), mine)
    except Exception as error:
        mine.append(Record.failed({"part": "node"}, in_one_line(error), reason=reason_of(error)))
        _publish(mine)
        raise
    _publish(mine)
    yield from _of_other_nodes()


def _name_hosts() -> None:
    """Say on the terminal which host each node is; results have the hosts' hashes only."""
    own = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    for node, name in nodes.here().gathered("host name", own, within=nodes.JOIN).items():
        progress.say(f"node {node} is {name}")


def _of_this_node(records: Iterable[Record], mine: list[Record]) -> Iterator[Record]:
    """Each as it comes, also added to `mine`; over several nodes it says whose it is."""
    job = nodes.here()
    for record in records:
        mine.append(record)
        yield record if job.count == 1 else _of_node(job.index, record)


def _publish(mine: list[Record]) -> None:
    """For the first of several nodes, also if this one has failed."""
    if nodes.here().count > 1:
        nodes.here().publish("health", base64.b64encode(pickle.dumps(mine)).decode())


def _of_other_nodes() -> Iterator[Record]:
    """On the first of several nodes the records of the others, and one of each that sends none."""
    job = nodes.here()
    if not job.leads or job.count == 1:
        return
    found = job.collect("health", within=nodes.JOIN)
    for node in range(1, job.count):
        theirs = pickle.loads(base64.b64decode(found[node])) if node in found else [LOST]
        yield from (_of_node(node, record) for record in theirs)


def _of_node(node: int, record: Record) -> Record:
    return replace(record, case={**record.case, "node": node})


def _collectives(spec: Spec, machine: Machine) -> Iterator[Record]:
    wanted = [layout for layout in layouts(machine.num_devices, spec.nodes) if layout.ranks > 1]
    if not wanted:
        yield from too_few_devices({"part": "collective"}, machine)
    for layout in progress.cases(wanted, label=lambda layout: f"collectives on {layout}"):
        sweep = product(collectives.COLLECTIVES, spec.collective_bytes)
        cases = [(_case(layout, name, size, machine), "time") for name, size in sweep]
        yield from launch_and_record(_rank, spec, machine, layout=layout, machine=machine, cases=cases)


def _case(layout: Layout, collective: str, size: int, machine: Machine) -> Case:
    backend = dist.get_default_backend_for_device(machine.kind)
    return {"part": "collective", "collective": collective, **layout.case, "bytes": size, "backend": backend}


def _rank(ctx: RankContext, spec: Spec, machine: Machine) -> Iterator[Record]:
    for name, size in product(collectives.COLLECTIVES, spec.collective_bytes):
        case = _case(ctx.layout, name, size, machine)
        yield from guarded(collectives.timed(ctx, spec.measure, name, size, case), case)


def _between_nodes(spec: Spec, machine: Machine) -> Iterator[Record]:
    """All-reduces within every node and between every two, on all devices."""
    size = max(spec.collective_bytes)
    progress.doing(f"every node, then every pair of {spec.nodes} nodes")
    layout = Layout(machine.num_devices * spec.nodes, spec.nodes)
    case: Case = {"part": "node", "bytes": size}
    work = (collectives.of_nodes, spec.measure, size)
    yield from launch_and_record(*work, layout=layout, machine=machine, cases=[(case, "time")])
