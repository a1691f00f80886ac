"""What is said about one part of a machine, the kinds of trouble that it can be evidence of, and where parts are.

A result over several nodes is viewed as each node measured it: its own records and hardware, and whose parts they are.
"""

from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from scalecard.analysis import by_key
from scalecard.records.axes import Case
from scalecard.records.record import Record, Result

SYMBOLS = {
    "errors": "✗",
    "slowed down": "↓",
    "odd one out": "≠",
    "low": "▼",
    "not measured": "?",
    "not judged": "–",
    "normal": "✓",
}
WORDS = tuple(SYMBOLS)  # the worst first
FINE = ("normal", "not judged")
MOST_SEEN = 3  # of what a fault also shows in are told
EXPERIMENT = "health"  # whose result is judged


class Part(StrEnum):
    """The parts of a machine, in the order of their tiles."""

    COMPUTE = "compute"
    MEMORY = "memory"
    HOST_LINKS = "host links"
    GPU_LINKS = "GPU links"
    COLLECTIVES = "collectives"
    NETWORK = "network"
    HOST = "host"


class Kind(StrEnum):
    """The kinds of trouble, the worst cause first: of two alerts the earlier kind leads."""

    DEVICE_FAULT = "device fault"
    WRONG_VALUES = "wrong values"
    FAILED = "failed"
    LOST = "lost"
    XID = "XID"
    MEMORY_ERRORS = "memory errors"
    SLOWED_DOWN = "slowed down"
    SLOT_WIDTH = "slot width"
    SLOT_GENERATION = "slot generation"
    NVLINKS_DOWN = "NVLinks down"
    NVLINK_ERRORS = "NVLink errors"
    PCIE_ERRORS = "PCIe errors"
    PEER_ACCESS = "peer access"
    COMPUTE = "compute"
    MEMORY = "memory"
    HOST_LINK = "host link"
    DEVICE_LINKS = "device links"
    PAIR = "pair"
    PCIE_PAIR = "PCIe pair"
    SHARED_MEMORY = "shared memory"
    SOCKET = "socket"
    ADAPTER_RATE = "adapter rate"
    ADAPTER_ERRORS = "adapter errors"
    NO_GPUDIRECT = "no GPUDirect"
    NODE = "node"
    NODE_LINKS = "node links"
    NODE_PAIR = "node pair"
    HOST_MEMORY = "host memory"
    LATENCY = "latency"
    COLLECTIVE = "collective"
    PCIE_COLLECTIVE = "PCIe collective"
    STORAGE = "storage"
    FREE_SPACE = "free space"
    NOT_MEASURED = "not measured"
    OTHER = "other"  # evidence of no trouble that is known


# What to look at, in the order in which it is cheapest to look: one sentence without its full stop.
ADVICE = {
    Kind.LOST: "look for an XID in `dmesg`, then power-cycle the machine; if it stays away, reseat the card, or"
    " return it",
    Kind.DEVICE_FAULT: "look for its XID in `dmesg`; reset the GPU (`nvidia-smi --gpu-reset`) or power-cycle the"
    " machine; return the card if it comes back",
    Kind.WRONG_VALUES: "do not train on it; measure again, at its default clocks and power limit, then run NVIDIA's"
    " `dcgmi diag -r 3`; return the card if it comes back",
    Kind.FAILED: "the note and the log (results/logs) say which process failed and how; run it again, and look at"
    " `dmesg` for what the kernel killed",
    Kind.XID: "look the number up in NVIDIA's list of XIDs (`dmesg | grep -i xid`); drain the machine and reset the"
    " GPU",
    Kind.MEMORY_ERRORS: "`nvidia-smi -q -d ECC,ROW_REMAPPER`; reset the GPU if a remap is pending; return the card if"
    " uncorrected errors come back",
    Kind.SLOWED_DOWN: "clean fans and filters, check the airflow, the inlet's temperature and the power cables;"
    " `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER` says what holds it back",
    Kind.SLOT_WIDTH: "reseat the card, check its riser and cables, and the slot's width or bifurcation in the BIOS",
    Kind.SLOT_GENERATION: "check the riser and its cables, and set the slot's generation (or Auto) in the BIOS",
    Kind.NVLINKS_DOWN: "`nvidia-smi nvlink -s` and `nvidia-smi nvlink -e`; reseat the bridge or the GPU's baseboard;"
    " with NVSwitches check nvidia-fabricmanager's log",
    Kind.NVLINK_ERRORS: "`nvidia-smi nvlink -e`; reseat the bridge or the GPU's baseboard; look at the fabric"
    " manager's log",
    Kind.PCIE_ERRORS: "reseat the card, check its riser and cables; look for AER messages in `dmesg`",
    Kind.COMPUTE: "compare clocks, temperature and power limit with the others' (`nvidia-smi -q -d CLOCK,POWER`),"
    " look for other processes, then at cooling and power",
    Kind.MEMORY: "`nvidia-smi -q -d ECC,ROW_REMAPPER,CLOCK`: errors, and the memory's clock; look for other processes",
    Kind.HOST_LINK: "`nvidia-smi -q -d PCIE` under load: generation and width; then the riser, the BIOS slot's width,"
    " and whether the process ran on the GPU's NUMA node",
    Kind.DEVICE_LINKS: "`nvidia-smi nvlink -s` and `nvidia-smi nvlink -e`; nvidia-fabricmanager's log; reseat the GPU",
    Kind.PAIR: "`nvidia-smi nvlink -s` and `nvidia-smi nvlink -e` on both GPUs; reseat the bridge or the GPUs; with"
    " NVSwitches look at nvidia-fabricmanager",
    Kind.PCIE_PAIR: "whether ACS or the IOMMU sends peers' traffic through the CPU (`lspci -vvv | grep ACSCtl`;"
    " BIOS), and NCCL_P2P_LEVEL",
    Kind.PEER_ACCESS: "`nvidia-smi topo -p2p r`; turn ACS or the IOMMU off for these GPUs, start"
    " nvidia-fabricmanager, and look at NCCL_P2P_DISABLE and NCCL_P2P_LEVEL",
    Kind.LATENCY: "which NUMA node the process ran on, the CPU's governor, and ACS or the IOMMU",
    Kind.COLLECTIVE: "NCCL_DEBUG=INFO for the paths that NCCL chose; NCCL_ALGO, NCCL_P2P_LEVEL and other NCCL"
    " variables that are set",
    Kind.PCIE_COLLECTIVE: "NCCL_DEBUG=INFO for the paths that NCCL chose; whether ACS or the IOMMU keeps GPUs from"
    " writing to one another; NCCL_P2P_LEVEL",
    Kind.SHARED_MEMORY: "NCCL_P2P_DISABLE and NCCL_P2P_LEVEL, ACS and the IOMMU, and whether the container shares its"
    " processes' memory (--ipc=host)",
    Kind.SOCKET: "install libibverbs, pass /dev/infiniband into the container, unset NCCL_IB_DISABLE, and look at"
    " NCCL_IB_HCA and NCCL_SOCKET_IFNAME",
    Kind.NO_GPUDIRECT: "load nvidia_peermem (or use the open kernel modules), and look at ACS and NCCL_NET_GDR_LEVEL",
    Kind.ADAPTER_ERRORS: "clean or replace the cable and its transceiver; `ibqueryerrors`, `mlxlink -d DEVICE -c`",
    Kind.ADAPTER_RATE: "`ibstat` there and the switch's port: the cable, its transceiver, and the speed that is set",
    Kind.NODE: "run ScaleCard's health on that node alone: its GPUs, its links, then NCCL's environment there",
    Kind.NODE_LINKS: "that node's cables and adapters: `ibstat`, `ibqueryerrors`, `mlxlink`; then its PCIe slots for"
    " them",
    Kind.NODE_PAIR: "the way between the two: cables, the switches' ports, routing (`ibtracert`)",
    Kind.STORAGE: "whether other jobs read from it; `iostat -x`; the mount's options",
    Kind.FREE_SPACE: "`df -h` on that file system, and what filled it; results that cannot be saved are kept elsewhere",
    Kind.NOT_MEASURED: "the `minutes` of health in config.yaml, which it gets whatever the budget",
    Kind.HOST_MEMORY: "whether every channel has its modules, and the BIOS's memory speed and NUMA settings",
}

# A worker that emulates a device is slow for other reasons than a GPU.
SLOW_KINDS = (Kind.SLOWED_DOWN, Kind.COMPUTE, Kind.MEMORY, Kind.HOST_LINK, Kind.DEVICE_LINKS, Kind.PAIR, Kind.LATENCY)
WORKER_ADVICE = "other programs, and virtual machines on the same host; the CPU's governor, power limit and cooling"


@dataclass(frozen=True)
class Place:
    """A device, another part of the machine by its name or, with neither, a whole node.

    `node` is the number of its node, if there are several. A device is a GPU, or a `worker` that stands in for one;
    `numa` is the NUMA node that a GPU is near, if that is known.
    """

    node: int | None = None
    device: int | None = None
    part: str = ""
    worker: bool = False
    numa: int | None = field(default=None, compare=False)

    @property
    def is_node(self) -> bool:
        return self.device is None and not self.part

    @property
    def on_its_node(self) -> str:
        """'GPU 3', 'worker 3', 'storage'; 'node 3' for all of it."""
        if self.device is not None:
            return f"{'worker' if self.worker else 'GPU'} {self.device}"
        return self.part or f"node {self.node}"

    def __str__(self) -> str:
        """ "node 1's GPU 3", or 'GPU 3' if there is only one node."""
        return self.on_its_node if self.node is None or self.is_node else f"node {self.node}'s {self.on_its_node}"


@dataclass(frozen=True)
class Verdict:
    """One part of the machine, judged.

    `verdict` is one of WORDS; `share` is that of the hardware's limit, where one is known. `kind` is the trouble that
    it would be evidence of, and `place` the devices or nodes that it is about; an empty place is all of them. `who`
    says whose it is if the names of the place do not, and `measured` what was measured of them. `seen_in` says of an
    alert where else the same trouble shows; `low`, whether any of it is below what is normal for the hardware's limit,
    also where the word is another. `case` is that of a rate.
    """

    part: Part
    kind: Kind
    place: tuple[Place, ...]
    _: KW_ONLY
    verdict: str
    value: str
    normal: str
    measured: str = ""
    who: str | None = None
    share: float | None = None
    seen_in: tuple[str, ...] = ()
    low: bool = False
    case: Case = field(default_factory=dict)

    @property
    def num_devices(self) -> int:
        """Of a collective how many take part; 0 of what is none."""
        count = self.case.get("devices")
        return count if isinstance(count, int) else 0

    @property
    def direction(self) -> str:
        """Of a copy from or to the host."""
        return str(self.case.get("direction", ""))

    @property
    def fine(self) -> bool:
        """Whether nothing is wrong, as far as could be judged."""
        return self.verdict in FINE

    @property
    def what(self) -> str:
        """'GPU 3, memory copy, alone': whose, and what was measured."""
        who = " and ".join(map(str, self.place)) if self.who is None else self.who
        return ", ".join(filter(None, (who, self.measured)))

    @property
    def advice(self) -> str:
        """What to look at; '' if nothing is wrong."""
        if self.fine:
            return ""
        emulated = self.kind in SLOW_KINDS and any(place.worker for place in self.place)
        return WORKER_ADVICE if emulated else ADVICE[self.kind]

    @property
    def text(self) -> str:
        """With where else it shows, if anywhere."""
        where = list(dict.fromkeys(self.seen_in))
        more = [f"and {len(where) - MOST_SEEN} more"] if len(where) > MOST_SEEN else []
        elsewhere = f". It also shows in {'; '.join([*where[:MOST_SEEN], *more])}" if where else ""
        return f"{self.what}: {self.verdict}, {self.value} ({self.normal}){elsewhere}"


@dataclass(frozen=True)
class View:
    """What one node measured, as a result of its own; `node` is its number, None if there is only one."""

    result: Result
    node: int | None = None

    def part(self, name: str) -> Place:
        """Its storage, its cores ..."""
        return Place(self.node, part=name)

    def device(self, index: int) -> Place:
        """One of its GPUs or workers."""
        gpus = self.result.environment["gpus"]
        numa = gpus[index]["numa_node"] if index < len(gpus) else None
        return Place(self.node, device=index, worker=self.result.emulated, numa=numa)


@lru_cache(maxsize=4)
def views(result: Result) -> list[View]:
    """One for each node. What all of them measured together is in none of them."""
    described, records = result.environment["nodes"], by_key((_whose(record), record) for record in result.records)
    if not described:
        return [View(result)]
    found = []
    for node in range(len(described)):
        mine = records.get(node, [])
        own = [replace(r, case={axis: r.case[axis] for axis in r.case if axis != "node"}) for r in mine]
        found.append(View(replace(result, records=own, environment=_environment(result, node)), node))
    return found


def together(result: Result) -> Result:
    """Only what several nodes measured together, or of one another; nothing if there is only one."""
    several = result.environment["nodes"]
    return replace(result, records=[r for r in result.records if several and _whose(r) is None])


def _whose(record: Record) -> int | None:
    """The node that a record is of; the first one measures what needs ranks on one node only."""
    case = record.case
    # The `node` of these parts is what was measured, not where.
    if case.get("part") in ("node", "node pair") or case.get("nodes"):
        return None
    node = case.get("node") or 0
    assert isinstance(node, int), f"node is {node!r}"
    return node


def _environment(result: Result, node: int) -> dict[str, Any]:
    """The first node's, with the facts that are others on this one."""
    facts = deepcopy(result.environment)
    for difference in facts["nodes"][node]["differs"]:
        _put(facts, *difference["path"], value=difference["value"])
    return {**facts, "nodes": []}


def _put(facts: Any, key: Any, *rest: str | int, value: Any) -> None:
    if isinstance(facts, list):
        facts += [{} if rest else None] * (key + 1 - len(facts))
    if not rest:
        facts[key] = value
        return
    if isinstance(facts, dict):
        facts.setdefault(key, {})
    _put(facts[key], *rest, value=value)
