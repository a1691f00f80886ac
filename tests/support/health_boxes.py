"""Made-up results of `health`: a box of any GPUs, its links and nodes, healthy or with planted faults."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations, product
from typing import Any, NamedTuple

from scalecard.analysis import limits, published_figures
from scalecard.hardware.environment import of_nodes
from scalecard.hardware.machine import Machine, probe
from scalecard.records.axes import Case
from scalecard.records.record import HardwareState, Record, Result, Spread, Telemetry

from support.builders import environment_of, gpu_state, hardware_state

MIB, GIB = 2**20, 2**30
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
ROUNDS = 12
WAKE = 5e-6  # seconds that a copy takes however few bytes it has
Matrix = list[list[int]]


class Extent(NamedTuple):
    """How much is looked at: bytes of copies and collectives, the host's memory, and what counts errors."""

    host: tuple[int, ...] = (256 * MIB,)
    links: tuple[int, ...] = (4096, GIB)
    collectives: tuple[int, ...] = (GIB,)
    memories: tuple[str, ...] = ("pinned", "pageable")
    counters: tuple[str, ...] = ("ECC corrected", "XID", "PCIe replays")
    port_counters: tuple[str, ...] = ("symbol errors",)


USUAL = Extent()


def health_cases(
    devices: int, *, emulated: bool = False, nodes: int = 1, adapters: int = 0, extent: Extent = USUAL
) -> Iterator[tuple[str, Case]]:
    """(metric, case) of every record of a run, as the experiment lays them out."""
    own = [{"device": device, "at_once": at_once} for at_once, device in product((False, True), range(devices))]
    for case, dtype in product(own, ("float32", "bfloat16")):
        yield "time", {"part": "compute", **case, "dtype": dtype, "size": 8192, "products": 10}
    for case, access in product(own, ("read", "write", "copy")):
        yield "time", {"part": "memory", **case, "access": access, "bytes": GIB}
    for case, direction, memory, size in product(own, ("to device", "to host"), extent.memories, extent.host):
        yield "time", {"part": "host link", **case, "direction": direction, "memory": memory, "bytes": size}
    for size, at_once, (source, target) in product(extent.links, (False, True), permutations(range(devices), 2)):
        pair: Case = {"source": source, "target": target, "at_once": at_once}
        yield "time", {"part": "device link", **pair, "bytes": size, "peer": None if emulated else True}
    for collective, count, size in product(COLLECTIVES, _counts(devices), extent.collectives):
        yield "time", _collective(collective, count, size, emulated)
    yield from _over_nodes(devices, nodes, max(extent.collectives), emulated)
    for device in range(devices):
        yield "time", {"part": "load", "device": device, "dtype": "bfloat16", "size": 8192, "products": 10}
    for device, counter in product(range(0 if emulated else devices), extent.counters):
        yield "errors", {"part": "counters", "device": device, "counter": counter}
    for port in (f"mlx5_{number} port 1" for number in range(adapters)):
        for counter in extent.port_counters:
            yield "errors", {"part": "counters", "adapter": port, "counter": counter}
        yield "rate", {"part": "adapter", "adapter": port}
    yield "time", {"part": "storage", "bytes": GIB}
    yield "free_space", {"part": "storage"}
    for numa_node in (0, 1):
        yield "time", {"part": "host memory", "numa_node": numa_node, "bytes": GIB}


def _counts(devices: int) -> list[int]:
    return [count for count in (2, 4, 8, 16) if count < devices] + [devices] * (devices > 1)


def _collective(name: str, devices: int, size: int, emulated: bool) -> Case:
    backend = "gloo" if emulated else "nccl"
    return {"part": "collective", "collective": name, "devices": devices, "bytes": size, "backend": backend}


def _over_nodes(devices: int, nodes: int, size: int, emulated: bool) -> Iterator[tuple[str, Case]]:
    if nodes == 1:
        return
    yield "time", {**_collective("all_reduce", devices * nodes, size, emulated), "nodes": nodes}
    for node in range(nodes):
        yield "time", {"part": "node", "node": node, "devices": devices, "bytes": size}
    for a in range(nodes):
        for b in range(a + 1, nodes):
            yield "time", {"part": "node pair", "node": a, "other": b, "devices": 2 * devices, "bytes": size}


@dataclass
class Box:
    """A machine, and what is wrong with it.

    `links` are the NVLinks of each pair, `switched` all that a GPU has; `slots` are (generation, width) of each card.
    `speed`, `memory` and `nodes_speed` multiply the rate of a device or node, `pairs` that of a link both ways. `at`
    has the nodes that are others than this one.
    """

    gpu: str = "NVIDIA H100 80GB HBM3"
    count: int = 8
    switched: int = 0
    links: Matrix | None = None
    level: int = 20
    slots: dict[int, tuple[int, int]] = field(default_factory=dict)
    speed: dict[int, float] = field(default_factory=dict)
    memory: dict[int, float] = field(default_factory=dict)
    pairs: dict[tuple[int, int], float] = field(default_factory=dict)
    hot: set[int] = field(default_factory=set)
    held: dict[str, float] = field(default_factory=lambda: {"power cap": 0.9})
    lost: set[int] = field(default_factory=set)
    grown: dict[tuple[Any, str], int] = field(default_factory=dict)
    nodes: int = 1
    nodes_speed: dict[int, float] = field(default_factory=dict)
    at: dict[int, "Box"] = field(default_factory=dict)
    adapters: int = 0
    adapter_gbit: int = 400
    free_bytes: int = 500 * GIB
    nccl_paths: dict[str, int] = field(default_factory=dict)
    peer: bool = True
    emulated: bool = False
    extent: Extent = USUAL
    ring_share: float = 0.8  # of the rate of a GPU's NVLinks
    network_gbs: tuple[float, float] = (200.0, 40.0)  # bus bandwidth within a node, and over nodes

    def result(self) -> Result:
        """Its result; the samples scatter by 0.3 % and are the same every time."""
        every = [self.at.get(node, self) for node in range(self.nodes)]
        environments = [box.environment for box in every]
        return Result(
            experiment="health",
            platform="box",
            spec={},
            environment={**environments[0], "nodes": of_nodes(environments) if self.nodes > 1 else []},
            started="2026-01-01T00:00:00.000+00:00",
            finished="2026-01-01T00:05:00.000+00:00",
            warnings=[],
            records=[*self.records(every)],
        )

    def records(self, every: Sequence["Box"]) -> Iterator[Record]:
        """What each node measured of itself says whose it is, if there are several."""
        draw, own = random.Random(1), {"emulated": self.emulated, "nodes": self.nodes, "adapters": self.adapters}
        for metric, case in health_cases(self.count, **own, extent=self.extent):
            if case["part"] in ("collective", "node", "node pair"):
                yield self._record(draw, metric, case)
                continue
            for node, box in enumerate(every):
                if not box._gone(case):
                    record = box._record(draw, metric, case)
                    yield record if len(every) == 1 else replace(record, case={**record.case, "node": node})

    def _gone(self, case: Case) -> bool:
        return any(case.get(axis) in self.lost for axis in ("device", "source", "target"))

    def nvlinks(self, a: int, b: int) -> int:
        return self.switched or (self.links[a][b] if self.links else 0)

    def slot(self, device: int) -> tuple[int, int]:
        sheet = published_figures._read("gpu_specs.yaml")["gpus"][self.gpu]
        return self.slots.get(device, (sheet["pcie_gen"] or 1, sheet["pcie_lanes"] or 1))

    def machine(self) -> Machine:
        names = [] if self.emulated else [self.gpu] * self.count
        facts = {"kind": "cpu", "driver": None} if self.emulated else {"kind": "cuda", "driver": "580.65.06"}
        hashes = [f"{index:012}" for index in range(len(names))]
        return replace(probe(), gpus=names, gpu_uuid_hashes=hashes, num_devices=self.count, **facts)

    @property
    def environment(self) -> dict[str, Any]:
        every = range(0 if self.emulated else self.count)
        return {
            **environment_of(self.machine()),
            "gpus": [self._facts(device) for device in every],
            "topology": [[None if a == b else self.level for b in every] for a in every],
            "nvlink_pairs": [[None if a == b else self.nvlinks(a, b) for b in every] for a in every],
            "nccl_paths": self.nccl_paths,
            "missing": {},
        }

    def _facts(self, device: int) -> dict[str, Any]:
        best = Box(gpu=self.gpu, count=1).slot(0)
        links = self.switched or sum(self.links[device] if self.links else [])
        generation, width = self.slot(device)
        numbers = {"memory_bytes": 40 * GIB, "power_limit_w": 400.0, "power_limit_max_w": 400.0}
        clocks = {"sm_clock_max_mhz": 1410, "memory_clock_max_mhz": 1215}
        errors = {"ecc": True, "ecc_corrected": 0, "ecc_uncorrected": 0}
        slot = {"pcie_gen": generation, "pcie_gen_max": best[0], "pcie_width": width, "pcie_width_max": best[1]}
        near = {"numa_node": 2 * device // self.count, "cores": "0-31"}
        name = {"name": self.gpu, "uuid_hash": f"{device:012}", "nvlinks": links}
        return {**name, **numbers, **clocks, **errors, **slot, **near}

    def _record(self, draw: random.Random, metric: str, case: Case) -> Record:
        if metric == "errors":
            grown = self.grown.get((case.get("device", case.get("adapter")), str(case["counter"])), 0)
            return Record(case=case, metric=metric, unit="count", samples=[[3, 3 + grown]])
        if metric == "free_space":
            return Record(case=case, metric=metric, unit="B", samples=[[self.free_bytes]])
        if metric == "rate":
            return Record(case=case, metric=metric, unit="B/s", samples=[[self.adapter_gbit * 1e9 / 8]])
        if case["part"] == "device link":
            case = {**case, "peer": None if self.emulated else self.peer}
        seconds = self.seconds(case)
        samples = [seconds * draw.gauss(1, 0.003) for _ in range(ROUNDS)]
        if case["part"] == "load":
            samples = self._course(samples, int(case["device"] or 0))
        watched = Telemetry(rounds_id=str(case), iterations=10, state=self._state)
        return Record(case=case, metric="time", unit="s", samples=[samples], telemetry=[watched])

    def _course(self, samples: list[float], device: int) -> list[float]:
        """A hot card slows down by a quarter halfway."""
        return [s / (0.75 if device in self.hot and i >= ROUNDS // 2 else 1.0) for i, s in enumerate(samples)]

    @cached_property
    def _state(self) -> HardwareState:
        held = {"thermal slowdown (hardware)": 0.5}
        degrees = {True: Spread(low=70, median=88, high=93), False: Spread(low=41, median=55, high=61)}
        states = []
        for device in range(0 if self.emulated else self.count):
            generation, width = self.slot(device)
            hot = device in self.hot
            reasons = held if hot else self.held
            states.append(gpu_state(pcie_gen=generation, pcie_width=width, reasons=reasons, temperature_c=degrees[hot]))
        return hardware_state(*states)

    def seconds(self, case: Case) -> float:
        """How long a healthy part takes, or one with the planted fault."""
        facts: dict[str, Any] = dict(case)
        of_part = {
            "compute": self._compute,
            "load": self._compute,
            "memory": self._memory,
            "host link": self._host_link,
            "device link": self._device_link,
            "collective": self._collective,
            "node": self._node,
            "node pair": self._node,
        }
        if facts["part"] in of_part:
            return of_part[facts["part"]](facts)
        return float(facts["bytes"]) / 5e9

    def share(self, dtype: str) -> float:
        """What healthy cards were published to reach of their peak, otherwise what is usual."""
        sheet = published_figures.gpu_spec(self.gpu)
        assert sheet
        return sheet.reached.get(dtype, sheet.most.get(dtype, 0.65))

    def _compute(self, case: dict[str, Any]) -> float:
        sheet = published_figures.gpu_spec(self.gpu)
        peak = (sheet and sheet.peak_tflops.get(case["dtype"])) or 10.0
        share = self.share(case["dtype"])
        together = 0.9 if case.get("at_once") or case["part"] == "load" else 1.0
        hot = 0.75 if case["device"] in self.hot and together < 1 and case["part"] != "load" else 1.0
        rate = share * peak * self.speed.get(case["device"], 1.0) * together * hot
        return 2 * float(case["size"]) ** 3 * case["products"] / (rate * 1e12)

    def _memory(self, case: dict[str, Any]) -> float:
        sheet = published_figures.gpu_spec(self.gpu)
        assert sheet
        assert sheet.mem_bw_gbs
        # NVIDIA/nccl issue 1264: copies within healthy H100 and A100 reach 73.6 to 75.1 %; torch.sum reads with 94 %.
        rate = (
            (0.736 if case["access"] == "copy" else 0.85)
            * sheet.mem_bw_gbs
            * 1e9
            * self.memory.get(case["device"], 1.0)
        )
        return (2 if case["access"] == "copy" else 1) * case["bytes"] / rate

    def _host_link(self, case: dict[str, Any]) -> float:
        sheet = published_figures.gpu_spec(self.gpu)
        own = sheet and sheet.host_link_one_way_gbs
        rate = 0.7 * own if own else 0.82 * limits.pcie_gbs(*self.slot(case["device"]))
        rate *= 0.7 if case["at_once"] else 1.0
        return WAKE + float(case["bytes"]) / (1e9 * (min(rate, 2.0) if case["memory"] == "pageable" else rate))

    def _link(self, a: int, b: int) -> float:
        """GB/s from one GPU to another."""
        sheet = published_figures.gpu_spec(self.gpu)
        one = (sheet and sheet.one_nvlink_gbs) or 25.0
        through_host = 0.6 * min(limits.pcie_gbs(*self.slot(device)) for device in (a, b))
        rate = 0.85 * one * self.nvlinks(a, b) if self.nvlinks(a, b) and self.peer else through_host
        return rate * self.pairs.get((min(a, b), max(a, b)), 1.0)

    def _device_link(self, case: dict[str, Any]) -> float:
        rate = self._link(case["source"], case["target"]) * (0.8 if case["at_once"] else 1.0)
        return max(10e-6, case["bytes"] / (1e9 * rate))

    def _collective(self, case: dict[str, Any]) -> float:
        """A ring is as slow as its slowest link, and NCCL goes around by NVLinks if it can."""
        used = range(case["devices"] if not case.get("nodes") else self.count)
        near = [sum(self.nvlinks(a, b) > 0 for b in used if a != b) for a in used]
        fewest = len(used) - 1 if case["collective"] == "all_to_all" else min(2, len(used) - 1)
        if min(near) >= fewest and self.peer:
            sheet = published_figures.gpu_spec(self.gpu)
            of_each = self.switched or min(sum(self.nvlinks(a, b) for b in used if a != b) for a in used)
            rate = self.ring_share * of_each * ((sheet and sheet.one_nvlink_gbs) or 25.0)
            rate *= min(self.pairs.get((a, b), 1.0) for a in used for b in used)
        else:
            rate = min((self._link(a, b) for a in used for b in used if a != b), default=1.0) * 0.9
        rate *= self._slowest(used)
        if case.get("nodes"):
            rate = self.network_gbs[1] * min([*self.nodes_speed.values(), 1.0])
        n, factors = case["devices"], {"all_reduce": 2.0, "broadcast": case["devices"] / (case["devices"] - 1)}
        return n * WAKE + float(factors.get(case["collective"], 1.0) * (n - 1) / n * case["bytes"] / (rate * 1e9))

    def _slowest(self, used: range) -> float:
        """Ranks wait for the slowest of them, and add up as fast as its memory."""
        return min(min(self.speed.get(device, 1.0), 0.8 if device in self.hot else 1.0) for device in used)

    def _node(self, case: dict[str, Any]) -> float:
        ends = [case[axis] for axis in ("node", "other") if axis in case]
        rate = self.network_gbs[len(ends) - 1] * 1e9
        rate *= 1.0 if len(ends) == 1 else min(self.nodes_speed.get(end, 1.0) for end in ends)
        n = case["devices"]
        return float(2 * (n - 1) / n * case["bytes"] / rate)
