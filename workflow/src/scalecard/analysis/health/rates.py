"""Rates from the records of `health`, and verdicts on them.

Each rate has its interval and its limit. Outliers are slower than their peers in this run; others lie below the limit.
"""

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from statistics import median

from scalecard.analysis import by_key, formatting, limits
from scalecard.analysis.health.verdict import Kind, Part, Place, Verdict, View, together, views
from scalecard.analysis.limits import Limit
from scalecard.records.axes import Scalar
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Interval

NOTABLE = 0.9  # of the median of its peers: what lies below, with its whole interval, is odd
OF_LATENCY = 2 / 3  # half as long again; the thread that starts a small copy makes more difference than a link
FEWEST = 3  # samples whose range may stand for an interval
# Smaller ones take about as long as it takes to start them, of which no link's rate says anything.
LEAST_BYTES = {"memory": 2**26, "host link": limits.LEAST_COPY, "device link": limits.LEAST_COPY, "collective": 2**28}
LEAST_SIZE = 2048  # rows of a product that keeps a GPU busy
# NCCL gets less out of a link with these than with an all-reduce.
LEAST_SHARE = {"all_gather": 0.6, "reduce_scatter": 0.6, "all_to_all": 0.5, "broadcast": 0.5}
OF_DEVICES = (Part.COMPUTE, Part.MEMORY, Part.HOST_LINKS)  # parts that every device has
MODES: dict[Scalar, str] = {False: "alone", True: "all at once"}


@dataclass(frozen=True, eq=False)
class Rate:
    """What was measured: `amount` per sample's time, beside its limit, in `unit`.

    `place` are the devices or nodes that it is about, and `node` is where, if there are several; what was measured of
    them is the record's case. A rate of a CPU worker has no limit. Rates of one part and kind with the same `like` are
    `peers`, itself included, by how low their intervals begin.
    """

    part: Part
    kind: Kind
    place: tuple[Place, ...]
    like: tuple[Hashable, ...]
    record: Record
    amount: float
    limit: Limit | None = None
    unit: str = "GB/s"
    node: int | None = None
    peers: list["Rate"] = field(default_factory=list)

    @property
    def value(self) -> float:
        return self.amount / self.record.median

    @cached_property
    def interval(self) -> Interval:
        """Without bounds of fewer than three samples; of too few for an interval it is their range."""
        every = [sample for samples in self.record.samples for sample in samples]
        if len(every) < FEWEST:
            return Interval(0.0, math.inf)
        times = self.record.interval or Interval(min(every), max(every))
        return Interval(self.amount / times.high, self.amount / times.low)

    @property
    def slowest_other(self) -> "Rate | None":
        """The peer whose interval begins lowest; None without any to compare with.

        Of latencies it is one of other devices, because what delays a device may delay all of its copies.
        """
        latency = self.kind is Kind.LATENCY
        apart = (peer for peer in self.peers if not latency or not set(peer.place) & set(self.place))
        return next((peer for peer in apart if peer is not self), None)

    @property
    def normal(self) -> float | None:
        """What is normal for its peers: their median or, of two, the faster one; None without any to compare with."""
        values = [peer.value for peer in self.peers]
        return None if self.slowest_other is None else max(values) if len(values) == 2 else median(values)

    @property
    def is_odd(self) -> bool:
        """Whether its whole interval lies below a tenth less than what is normal.

        Of two neither is the normal one: the slower is odd only if even the least that the faster may reach is more.
        Small copies are noisy, so the whole interval of a latency must lie below those of all others, too.
        """
        normal, other = self.normal, self.slowest_other
        if normal is None or other is None:
            return False
        if self.kind is Kind.LATENCY:
            return self.interval.high < min(OF_LATENCY * normal, other.interval.low)
        return self.interval.high < NOTABLE * (other.interval.low if len(self.peers) == 2 else normal)

    @property
    def share(self) -> float | None:
        """Of its limit, where that is known."""
        return self.value / self.limit.rate if self.limit else None

    @property
    def is_low(self) -> bool:
        """Whether it lies below what is normal for its limit."""
        return self.limit is not None and self.value / self.limit.rate < self.limit.least

    @property
    def is_above(self) -> bool:
        """Whether it is more than its limit allows, which then tells nothing of it."""
        return self.limit is not None and self.limit.is_exceeded_by(self.value)

    @property
    def beyond(self) -> str:
        """Why it is above its limit; '' if it is not. Switches that add up (NVLink SHARP) have fewer bytes sent."""
        if not (self.limit and self.is_above):
            return ""
        adds = self.kind in (Kind.COLLECTIVE, Kind.NODE) and self.limit.is_nvlink
        return limits.IN_THE_SWITCH if adds else self.limit.doubt

    @property
    def alone(self) -> bool:
        """Whether it was measured while every other device waited."""
        return self.record.case.get("at_once") is False

    @property
    def text(self) -> str:
        """The rate with its unit; a latency is told as a time."""
        return self.in_words(self.value)

    def in_words(self, value: float) -> str:
        """Another rate of its kind."""
        if self.kind is Kind.LATENCY:
            return formatting.seconds(self.record.median * self.value / value)
        return f"{self.number(value)} {self.unit}"

    @staticmethod
    def number(value: float) -> str:
        """A rate without its unit."""
        return f"{value:.0f}" if value >= 100 else f"{value:.3g}"

    @property
    def who(self) -> str:
        """'GPU 3', or 'GPU 3 to 1' in the direction of the copy; '' for what no device is named for."""
        if self.part is Part.GPU_LINKS:
            return f"{replace(self.place[0], device=self.record.integer('source'))} to {self.record.case['target']}"
        return str(self.place[0]) if self.part in OF_DEVICES else ""

    @property
    def measured(self) -> str:
        """'memory copy, alone': of whomever, and with which others at the same time."""
        case = self.record.case
        mode = "under load" if case["part"] == "load" else MODES.get(case.get("at_once"), "")
        return ", ".join(filter(None, (self._subject, mode)))

    @property
    def in_tile(self) -> str:
        """'memory copy, one at a time': of all devices, pairs or nodes together."""
        if self.part is Part.GPU_LINKS:
            return "copies, one pair at a time"
        if self.kind is Kind.NODE_PAIR:
            return "all-reduce between two nodes"
        return self._subject + (", one at a time" if self.alone else "")

    @property
    def in_strip(self) -> str:
        """'memory copy' or 'bfloat16 under load': alone and all at once share a strip."""
        return f"{self.record.case['dtype']} under load" if self.record.case["part"] == "load" else self._subject

    @property
    def _subject(self) -> str:
        case, nodes = self.record.case, [place.node for place in self.place]
        size = formatting.on_axis("bytes", case.get("bytes"))
        match case["part"]:
            case "compute" | "load":
                return f"{case['dtype']} products"
            case "memory":
                return f"memory {case['access']}"
            case "host link":
                return f"{case['direction']}, {case['memory']}" + (f", {size}" if self.kind is Kind.LATENCY else "")
            case "device link":
                return size
            case "node":
                return f"all-reduce within node {nodes[0]}"
            case "node pair":
                return f"all-reduce between nodes {nodes[0]} and {nodes[1]}"
            case "collective":
                over = formatting.over_nodes(self.record.integer("nodes", 0))
                name = str(case["collective"]).replace("_", "-")
                return f"{name} on {case['devices']} devices{over}, {size}"
        of_numa = "" if case.get("numa_node") is None else f" of NUMA node {case['numa_node']}"
        of_node = "" if self.node is None else f" of node {self.node}"
        return ("reading data_dir" if self.kind is Kind.STORAGE else f"copying memory{of_numa}") + of_node


@lru_cache(maxsize=4)  # platforms are drawn together
def rates(result: Result) -> list[Rate]:
    """Every rate that was measured, node by node, then those of several nodes."""
    found = list[Rate]()
    for at in [*views(result), View(together(result))]:
        for record in at.result.select("time"):
            if (part := record.text("part", "")) in READERS:
                rate = READERS[part](at, record)
                shared = record.case.get("at_once") or is_small(record)
                found.append(replace(rate, node=at.node, limit=None if shared else rate.limit))
    ordered = sorted(found, key=lambda rate: rate.interval.low)
    for alike in by_key(((rate.part, rate.kind, rate.like), rate) for rate in ordered).values():
        for rate in alike:
            rate.peers.extend(alike)
    return found


def _gpu(at: View, device: int, fact: str = "name") -> Hashable:
    """A fact of a device; None of workers."""
    gpus: list[dict[str, Hashable]] = at.result.environment["gpus"]
    return gpus[device][fact] if device < len(gpus) else None


def is_small(record: Record) -> bool:
    """Whether it is too small for its rate to say anything of the hardware's."""
    part, size, moved = record.text("part"), record.case.get("size"), record.case.get("bytes")
    if isinstance(size, int):
        return size < LEAST_SIZE
    return isinstance(moved, int) and moved < LEAST_BYTES.get(part, 0)


def _compute(at: View, record: Record) -> Rate:
    case, device, load = record.case, record.integer("device"), record.case["part"] == "load"
    limit = None if load else limits.of_products(at.result, record.text("dtype"), device)
    amount, place = limits.product_rate(record) * record.median, (at.device(device),)
    like = (load, case.get("at_once"), case["dtype"], case["size"], case["products"], _gpu(at, device))
    return Rate(Part.COMPUTE, Kind.COMPUTE, place, like, record, amount, limit, "TFLOP/s")


def _memory(at: View, record: Record) -> Rate:
    case, device = record.case, record.integer("device")
    passes = 2 if case["access"] == "copy" else 1
    amount, place = passes * record.integer("bytes") / 1e9, (at.device(device),)
    like = (case["access"], case["bytes"], case["at_once"], _gpu(at, device))
    return Rate(Part.MEMORY, Kind.MEMORY, place, like, record, amount, limits.of_memory(at.result, device))


def _host_link(at: View, record: Record) -> Rate:
    """At once, GPUs behind a PCIe switch share its way to the host, and only those with like neighbours are alike.

    A small copy also takes the longer the further the thread that starts it is from the GPU.
    """
    case, device, small = record.case, record.integer("device"), is_small(record)
    pinned = case["memory"] == "pinned"  # pageable memory is first copied by the CPU
    near: tuple[Hashable, ...] = (_gpu(at, device, "numa_node"),) if small else ()
    if case["at_once"]:  # threads that copy pageable memory are in one another's way: no two devices are alike
        near = (*near, _neighbours(at, device), () if pinned else device)
    kind, place, amount = Kind.LATENCY if small else Kind.HOST_LINK, (at.device(device),), record.integer("bytes") / 1e9
    like = (case["direction"], case["memory"], case["bytes"], case["at_once"], _gpu(at, device), *near)
    limit = limits.of_host_copy(at.result, record, device) if pinned else None
    return Rate(Part.HOST_LINKS, kind, place, like, record, amount, limit)


def _neighbours(at: View, device: int) -> tuple[int, ...]:
    """The levels of NVML's common ancestor with every other GPU, in order: alike for GPUs in like places."""
    topology: list[list[int | None]] = at.result.environment["topology"]
    return tuple(sorted(level for level in topology[device] if level is not None)) if device < len(topology) else ()


def _device_link(at: View, record: Record) -> Rate:
    source, target, size = (record.integer(axis) for axis in ("source", "target", "bytes"))
    at_once, way = bool(record.case["at_once"]), limits.link_kind(at.result, source, target)
    linked = Kind.PAIR if limits.nvlinks(at.result, source, target) else Kind.PCIE_PAIR
    kind = Kind.LATENCY if is_small(record) else linked
    near = () if kind is Kind.PAIR else _places(at, source, target, at_once=at_once)
    limit = limits.of_pair(at.result, record, source, target)
    place = tuple(at.device(device) for device in sorted((source, target)))
    like = (size, at_once, way, _gpu(at, source), _gpu(at, target), near)
    return Rate(Part.GPU_LINKS, kind, place, like, record, size / 1e9, limit)


def _places(at: View, source: int, target: int, *, at_once: bool) -> tuple[Hashable, ...]:
    """Where two GPUs are: copies over PCIe, and the threads that start small ones, may cross from CPU to CPU.

    At once, they share their ways with those of their neighbours.
    """
    nodes = tuple(_gpu(at, device, "numa_node") for device in (source, target))
    return (*nodes, *(_neighbours(at, device) for device in (source, target) if at_once))


def _collective(at: View, record: Record) -> Rate:
    case, nodes, used = record.case, record.case.get("nodes"), range(record.integer("devices"))
    ring = limits.has_ring(at.result, used)  # workers have no other way than the host's memory
    part, place = (Part.NETWORK, ()) if nodes else (Part.COLLECTIVES, tuple(map(at.device, used)))
    kind = Kind.COLLECTIVE if nodes or ring else Kind.PCIE_COLLECTIVE
    like = (case["collective"], case["devices"], nodes, case["bytes"])
    return Rate(part, kind, place, like, record, limits.bus_bytes(record) / 1e9, _of_ring(at, record))


def _of_ring(at: View, record: Record) -> Limit | None:
    """That of an all-reduce; where every rank sends to every other one, only if all of these are linked alike."""
    operation, used = record.text("collective"), range(record.integer("devices"))
    if operation == "all_to_all" and len({limits.link_kind(at.result, a, b) for a in used for b in used if a != b}) > 1:
        return None
    limit = limits.of_all_reduce(at.result, record)
    return limit and replace(limit, least=min(limit.least, LEAST_SHARE.get(operation, 1.0)))


def _nodes(_: View, record: Record) -> Rate:
    ends = sorted(record.integer(axis) for axis in ("node", "other") if record.case.get(axis) is not None)
    part, kind = (Part.COLLECTIVES, Kind.NODE) if len(ends) == 1 else (Part.NETWORK, Kind.NODE_PAIR)
    like = (record.case["devices"], record.case["bytes"])
    return Rate(part, kind, tuple(map(Place, ends)), like, record, limits.bus_bytes(record) / 1e9)


def _host(at: View, record: Record) -> Rate:
    if record.case["part"] == "storage":
        name, kind, passes = "storage", Kind.STORAGE, 1
    else:
        name, kind, passes = f"NUMA node {record.case.get('numa_node')}", Kind.HOST_MEMORY, 2
    size = record.integer("bytes")
    return Rate(Part.HOST, kind, (at.part(name),), (size,), record, passes * size / 1e9)


READERS = {  # by the part of a record's case
    "compute": _compute,
    "load": _compute,
    "memory": _memory,
    "host link": _host_link,
    "device link": _device_link,
    "collective": _collective,
    "node": _nodes,
    "node pair": _nodes,
    "storage": _host,
    "host memory": _host,
}


def verdicts(result: Result) -> Iterator[Verdict]:
    """One on every rate that was measured."""
    for rate in rates(result):
        # What is faster than the vendor's sheet says tells nothing of the device; its peers may still do.
        known = rate.limit is not None and not rate.is_above
        fine = "normal" if known or (rate.interval.high < math.inf and rate.slowest_other) else "not judged"
        word = "odd one out" if rate.is_odd else "low" if rate.is_low else fine
        value, normal = rate.text, _normal(rate)
        if rate.limit:
            value += f", more than {rate.limit.name}" if rate.is_above else f", {rate.limit.share(rate.value)}"
        yield Verdict(
            rate.part,
            rate.kind,
            rate.place,
            verdict=word,
            value=value,
            normal=normal,
            measured=rate.measured,
            who=rate.who,
            share=None if rate.is_above else rate.share,
            low=rate.is_low,
            case=rate.record.case,
        )


def _normal(rate: Rate) -> str:
    parts, normal, count = [], rate.normal, len(rate.peers)
    if normal is not None:
        parts.append(f"{rate.in_words(normal)} is the {'faster of two' if count == 2 else f'median of {count}'}")
    if rate.limit:
        usual = f"{rate.limit.normal} of {rate.in_words(rate.limit.rate)} is normal"
        parts.append(rate.beyond or usual)
    return "; ".join(parts) or "nothing is known to compare it with"
