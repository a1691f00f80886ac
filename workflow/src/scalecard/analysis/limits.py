"""The hardware's limit on a measured rate: slots, links, their topology, memory, FLOP/s; and whether one is normal.

Rates are one-way line rates less encoding, in GB/s, from PCI-SIG and the vendors' sheets in workflow/reference. How the
GPUs of a machine are linked is what NVML said of every pair.

A section whose rates have a limit offers `judge(result)`, which yields judgements: rates compared with the hardware's
limit, and times with those published for this device.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from scalecard.analysis import by_key, formatting, published_figures
from scalecard.analysis.health.verdict import Kind, Verdict
from scalecard.analysis.platforms import device_name
from scalecard.analysis.published_figures import GpuSpec, Match
from scalecard.progress import counted
from scalecard.records.axes import IN_BYTES
from scalecard.records.record import GpuState, Record, Result

# One-way GB/s per lane, line rate less encoding: PCI-SIG, generations 1 to 6.
PCIE_LANE_GBS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
LEAST_COPY = 2**24  # bytes; a smaller one takes about as long as it takes to start
TROUBLE = ("low", "odd one out", "slowed down", "errors")
PUBLISHED = 0.15  # up to this much worse than a published figure of the same device is normal
# For each published unit: 1 if more is worse, -1 if more is better. Other units are not judged.
DIRECTION = {"s": 1, "s/epoch": 1, "ms": 1, "samples/s": -1, "images/s": -1, "GB/s": -1, "TFLOP/s": -1}


@dataclass(frozen=True)
class Limit:
    """`least` and `most` are the normal shares of it; `advice` is set if a link runs below what its card can do.

    `origin` is who says that it is so much, and is wrong about it if it is exceeded.
    """

    rate: float
    name: str
    least: float
    advice: str = ""
    most: float = 1.0
    is_nvlink: bool = False
    origin: str = "the vendor's figure in gpu_specs.yaml"

    @property
    def normal(self) -> str:
        """The normal shares: '50 % to 100 %'."""
        return f"{formatting.percent(self.least)} to {formatting.percent(self.most)}"

    def share(self, rate: float) -> str:
        """A rate beside it: '81 % of PCIe 5 x16'."""
        return f"{formatting.percent(rate / self.rate)} of {self.name}"

    def beside(self, rate: float, unit: str) -> str:
        """The rest of a sentence: ', 81 % of PCIe 5 x16 (63 GB/s)'."""
        return f", {self.share(rate)} ({formatting.number(self.rate)} {unit})"

    def is_exceeded_by(self, rate: float) -> bool:
        """Whether a rate is impossible. What was done is counted before it is timed, so the limit is wrong."""
        return rate > BEYOND * self.most * self.rate

    @property
    def doubt(self) -> str:
        """What is said of it where it is exceeded."""
        return f"more than {formatting.percent(self.most)} is impossible, so {self.origin} is wrong"


# Packets cost PCIe 5 to 20 % of its line rate. NCCL's maintainers expect a ring to reach 370 of NVLink's 450 GB/s. A
# product of a few thousand rows keeps the units busy most of the time, but under the card's power cap.
PCIE, NVLINK, MEMORY, COMPUTE = 0.75, 0.70, 0.65, 0.50
# Healthy H100 SXM copy at 73.9 to 75.1 % of their memory's bandwidth, A100-80GB at 73.6 %: NVIDIA/nccl issue 1264.
# Cards whose power cap keeps them further below their peak have their own shares in gpu_specs.yaml, and so have those
# that boost beyond the clock of their sheet: healthy RTX 5090 multiply in bfloat16 at 116 % of it.
OF_REACHED = 0.85  # of what such a card was seen to reach
C2C = 0.50  # a CPU's memory has hardly more than the link's rate, and is read and written by others too
BUS_BANDWIDTH = "bus_bandwidth"  # the metric of published all-reduces
BY_DRIVER = "the generation or width that the driver told"
BEYOND = 1.05  # of the most that is normal; more cannot be
# Between GPUs without NVLink each byte crosses the root complex or, without peer access, the host's memory, whose rate
# many GPUs share and where both sides wait in turn.
THROUGH_HOST, COLLECTIVE_THROUGH_HOST = 0.25, 0.10
IN_THE_SWITCH = (
    "above the wire is right if the switch itself adds (NVLink SHARP): fewer bytes travel than the bus bandwidth"
    " formula counts"
)
# NVML's common ancestor of two GPUs, in nvidia-smi's words.
LEVELS = {0: "PSB", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
LINK_LEGEND = {
    "NV": "NVLinks, and how many",
    "PSB": "one board",
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the CPU's PCIe host bridge",
    "NODE": "several host bridges of one NUMA node",
    "SYS": "the link between two CPUs",
}


def of_copy(result: Result, record: Record) -> Limit | None:
    """The limit of one copy, or None if it is not known."""
    ends = [record.case["source"], record.case["target"]]
    if not result.environment["gpus"] or ends == ["host", "host"]:
        return None
    if is_within(record):
        return of_memory(result)
    if not is_pair(record):
        return of_host_copy(result, record)  # copies from and to the host use GPU 0
    return of_pair(result, record, record.integer("source"), record.integer("target"))


def of_memory(result: Result, device: int = 0) -> Limit | None:
    """The device's own memory, each byte counted as often as it is read or written."""
    spec = _spec(result, device)
    return Limit(spec.mem_bw_gbs, "the memory's bandwidth", MEMORY) if spec and spec.mem_bw_gbs else None


def of_host_copy(result: Result, record: Record, device: int = 0) -> Limit | None:
    """The link between a device and the host: PCIe, or what its module has instead."""
    spec = _spec(result, device)
    if spec and spec.host_link:
        rate = spec.host_link_one_way_gbs
        return Limit(rate, f"{spec.host_link}'s line rate", C2C) if rate else None
    return _pcie(result, record, [device])


def of_pair(result: Result, record: Record, a: int, b: int) -> Limit | None:
    """Copies from one GPU to another: the NVLinks of this pair or, if it has none, PCIe."""
    count = nvlinks(result, a, b)
    if count is None:
        return None
    if count:
        return _nvlink(result, a, count)
    pcie = _pcie(result, record, [a, b])
    return pcie and replace(pcie, least=THROUGH_HOST)


def is_within(record: Record) -> bool:
    """Whether a copy stays in one device's memory."""
    return record.case["source"] == record.case["target"] != "host"


def is_pair(record: Record) -> bool:
    """Whether a copy goes from one device to another."""
    return "host" not in (record.case["source"], record.case["target"]) and not is_within(record)


def copy_rate(record: Record) -> float:
    """Effective GB/s. Within a device every byte counts twice, because it is read and written."""
    passes = 2 if is_within(record) else 1
    return passes * record.integer("bytes") / record.median / 1e9


def of_all_reduce(result: Result, record: Record) -> Limit | None:
    """The link that limits bus bandwidth; None between nodes, where the network does and its rate is not known."""
    if record.case.get("nodes"):
        return None
    used = range(record.integer("devices"))
    if not 2 <= len(used) <= len(result.environment["gpus"]):
        return None
    if any(nvlinks(result, a, b) is None for a in used for b in used if a != b):
        return None
    if has_ring(result, used):
        return _nvlink(result, 0, min(_nvlinks_to(result, gpu, used) for gpu in used))
    pcie = _pcie(result, record, used)
    return pcie and replace(pcie, least=COLLECTIVE_THROUGH_HOST)


def bus_bytes(record: Record) -> float:
    """Bytes that cross each rank's link, as nccl-tests counts them, of a collective; without a name, an all-reduce."""
    collective, devices = record.text("collective", "all_reduce"), record.integer("devices")
    factors = {"all_reduce": 2 * (devices - 1) / devices, "broadcast": 1.0}
    return factors.get(collective, (devices - 1) / devices) * record.integer("bytes")


def bus_bandwidth(record: Record) -> float:
    """nccl-tests' bus bandwidth in GB/s."""
    return bus_bytes(record) / record.median / 1e9


def of_products(result: Result, dtype: str, device: int = 0) -> Limit | None:
    """The chip's dense peak in TFLOP/s."""
    spec = _spec(result, device)
    peak = spec and spec.peak_tflops.get(dtype)
    if not (spec and peak):
        return None
    reached, most = spec.reached.get(dtype), spec.most.get(dtype, 1.0)
    return Limit(peak, f"the dense peak in {dtype}", OF_REACHED * reached if reached else COMPUTE, most=most)


def product_rate(record: Record) -> float:
    """TFLOP/s: 2 n^3 operations per product."""
    return 2 * record.integer("size") ** 3 * record.integer("products") / record.median / 1e12


def _spec(result: Result, device: int) -> GpuSpec | None:
    gpus = result.environment["gpus"]
    return published_figures.gpu_spec(gpus[device]["name"]) if device < len(gpus) else None


def _nvlink(result: Result, device: int, count: int) -> Limit | None:
    """This many of a GPU's NVLinks; None if the vendor's rate is not known, because PCIe is not the limit then."""
    spec = _spec(result, device)
    if not (spec and spec.one_nvlink_gbs):
        return None
    part = "" if count == spec.nvlinks else f" over {count} of {spec.nvlinks} links"
    name, origin = f"NVLink's line rate{part}", "the number of links that the driver told, or gpu_specs.yaml,"
    return Limit(count * spec.one_nvlink_gbs, name, NVLINK, is_nvlink=True, origin=origin)


def _pcie(result: Result, record: Record, used: Iterable[int]) -> Limit | None:
    """The slowest link among the GPUs used, at the highest generation and width seen while this was measured."""
    gpus = result.environment["gpus"]
    seen = [(gpus[index], *pcie_seen(record, index)) for index in used if index < len(gpus)]
    found = [
        Limit(pcie_gbs(gen, width), f"PCIe {gen} x{width}", PCIE, _advice(gpu, gen, width), origin=BY_DRIVER)
        for gpu, gen, width in seen
        if gen and width
    ]
    return min(found, key=lambda limit: limit.rate, default=None)


def gpu_states(record: Record, gpu: int) -> list[GpuState]:
    """What NVML said of a GPU while the record was measured, process by process."""
    return [e.state.gpus[gpu] for e in record.telemetry if e.state and gpu < len(e.state.gpus)]


def pcie_seen(record: Record, gpu: int) -> tuple[int, int]:
    """(generation, width) of a GPU's link at their highest while the record was measured; 0 is not known."""
    states = gpu_states(record, gpu)
    return max((s.pcie_gen or 0 for s in states), default=0), max((s.pcie_width or 0 for s in states), default=0)


def _advice(gpu: dict[str, int | None], gen: int, width: int) -> str:
    if width < (gpu["pcie_width_max"] or 0):
        return f"the card can do x{gpu['pcie_width_max']} but runs at x{width}: reseat it, or check its slot"
    if gen < (gpu["pcie_gen_max"] or 0):
        return f"the card can do PCIe {gpu['pcie_gen_max']} but runs at {gen}: check the slot, the riser and the BIOS"
    return ""


def pcie_gbs(generation: int, lanes: int) -> float:
    """One-way line rate in GB/s of a PCIe link."""
    return PCIE_LANE_GBS[generation] * lanes


def nvlinks(result: Result, a: int, b: int) -> int | None:
    """How many NVLinks two GPUs have in both directions; None if the driver did not say."""
    pairs: list[list[int | None]] = result.environment["nvlink_pairs"]
    if max(a, b) >= len(pairs):
        return None
    there, back = pairs[a][b], pairs[b][a]
    return None if there is None or back is None else min(there, back)


def _nvlinks_to(result: Result, gpu: int, used: Sequence[int]) -> int:
    """How many NVLinks lead from a GPU to the others that are used; all of them, if they lead to switches."""
    counts = [nvlinks(result, gpu, other) or 0 for other in used if other != gpu]
    return max(counts, default=0) if _on_switches(result, gpu) else sum(counts)


def _on_switches(result: Result, gpu: int) -> bool:
    """Whether a GPU's NVLinks lead to switches: then more lead to its peers, counted one by one, than it has."""
    gpus = result.environment["gpus"]
    counts = [nvlinks(result, gpu, other) or 0 for other in range(len(gpus)) if other != gpu]
    return sum(counts) > (gpus[gpu]["nvlinks"] or 0)


def has_ring(result: Result, used: Sequence[int]) -> bool:
    """Whether NVLinks lead around all of these GPUs, each visited once."""
    neighbours = [sum(bool(nvlinks(result, a, b)) for b in used if b != a) for a in used]
    return min(neighbours) >= min(2, len(used) - 1) and _around(result, [used[0]], set(used[1:]))


def _around(result: Result, path: list[int], left: set[int]) -> bool:
    if not left:
        return bool(nvlinks(result, path[-1], path[0]))
    return any(nvlinks(result, path[-1], other) and _around(result, [*path, other], left - {other}) for other in left)


def _link(result: Result, a: int, b: int) -> str:
    """As in nvidia-smi's matrix: 'NV18', 'PIX' ...; 'X' for the GPU itself, '?' if it is not known."""
    if a == b:
        return "X"
    found = nvlinks(result, a, b)
    return f"NV{found}" if found else LEVELS.get(result.environment["topology"][a][b], "?")


def link_matrix(result: Result) -> list[list[str]]:
    """The labels of every pair; empty with fewer than two GPUs."""
    every = range(len(result.environment["gpus"]))
    return [[_link(result, a, b) for b in every] for a in every] if len(every) > 1 else []


def link_kind(result: Result, a: int, b: int) -> str:
    """What is alike for pairs that are linked alike: through switches 'NV', however many links are up."""
    if max(a, b) >= len(result.environment["gpus"]):
        return ""
    switched = a != b and nvlinks(result, a, b) and _on_switches(result, a) and _on_switches(result, b)
    return "NV" if switched else _link(result, a, b)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A measured value and what to expect of it: 'normal', 'above the wire', 'above the limit' or one of TROUBLE.

    `devices` and the `kind` of trouble that it would be evidence of, where `health` may know a cause. If it is such a
    cause, it has the `fault`, and `shows_in` says in which other sections that shows.
    """

    what: str
    value: str
    expectation: str
    verdict: str
    advice: str = ""
    kind: Kind = Kind.OTHER
    devices: tuple[int, ...] = ()
    fault: Verdict | None = None
    shows_in: tuple[str, ...] = ()

    @property
    def is_trouble(self) -> bool:
        """Whether it is less than it should be."""
        return self.verdict in TROUBLE

    @property
    def text(self) -> str:
        also = f"; also in {', '.join(self.shows_in)}" if self.shows_in else ""
        return f"{self.what}: {self.value}; {self.advice or self.expectation}{also}"


def kind_of_all_reduce(result: Result, devices: int) -> Kind:
    """What a slow all-reduce of these many devices of a node is evidence of."""
    return Kind.COLLECTIVE if has_ring(result, range(devices)) else Kind.PCIE_COLLECTIVE


def rated(what: str, rate: float, limit: Limit, unit: str, kind: Kind, devices: Iterable[int]) -> Judgement:
    """A rate compared with its limit, both in `unit`; it is that of these devices."""
    exceeded = limit.is_exceeded_by(rate)
    low = rate / limit.rate < limit.least or limit.advice
    return Judgement(
        what=what,
        value=f"{formatting.number(rate)} {unit}, {limit.share(rate)}",
        expectation=limit.doubt if exceeded else f"{limit.normal} of {formatting.number(limit.rate)} {unit} is normal",
        verdict="above the limit" if exceeded else "low" if low else "normal",
        advice="" if exceeded else limit.advice,
        kind=kind,
        devices=tuple(devices),
    )


def kind_of_copy(result: Result, record: Record) -> tuple[Kind, list[int]]:
    """What a slow copy is evidence of, and of which devices."""
    devices = sorted({end for end in (record.case["source"], record.case["target"]) if isinstance(end, int)})
    if is_within(record):
        return Kind.MEMORY, devices
    if not is_pair(record):
        return Kind.HOST_LINK, devices
    return Kind.PAIR if nvlinks(result, *devices) else Kind.PCIE_PAIR, devices


def beside_published(result: Result, matches: Sequence[Match]) -> Iterator[Judgement]:
    """Our values compared with those published of the same device; as good as the worst of these is normal.

    A time that includes more than ours is no measure of it.
    """
    device = device_name(result)
    same = [match for match in matches if published_figures.is_same_card(device, match.entry.gpu) and not match.besides]
    able = [match for match in same if match.entry.unit in DIRECTION and match.entry.value]
    for own in by_key((id(match.ours), match) for match in able).values():
        ours, entry = own[0].ours, max((each.entry for each in own), key=lambda e: DIRECTION[e.unit] * e.value)
        worse = (ours.value / entry.value) ** DIRECTION[entry.unit] - 1
        size = {axis: value for axis, value in ours.settings.items() if axis in IN_BYTES}
        where = ", ".join(filter(None, [f"on {counted(entry.gpus, 'GPU')}", formatting.case(size)]))
        yield Judgement(
            what=f"{formatting.spaced(entry.metric).capitalize()} {where}",
            value=f"{formatting.number(ours.value)} {entry.unit}",
            expectation=f"published for this device: {formatting.number(entry.value)} {entry.unit} ({entry.source})",
            verdict="low" if worse > PUBLISHED else "normal",
            kind=kind_of_all_reduce(result, entry.gpus) if entry.metric == BUS_BANDWIDTH else Kind.OTHER,
            devices=tuple(range(entry.gpus)),
        )
