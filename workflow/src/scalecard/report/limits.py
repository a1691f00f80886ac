"""The hardware's limit on a measured rate: PCIe or NVLink as seen under load, memory, and peak FLOP/s by dtype.

Rates are one-way line rates less encoding, in GB/s, from PCI-SIG and the vendors' sheets in workflow/reference.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from scalecard.records.record import Record, Result
from scalecard.report import reference

# One-way GB/s per lane, line rate less encoding: PCI-SIG, generations 1 to 6.
PCIE_LANE_GBS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


@dataclass(frozen=True)
class Limit:
    """`least` is the smallest normal share of it; `advice` is set if a link runs below what its card can do."""

    rate: float
    name: str
    least: float
    advice: str = ""

    @property
    def is_nvlink(self) -> bool:
        return self.name.startswith("NVLink")


# Packets cost PCIe 5 to 20 % of its line rate. NCCL's maintainers expect a ring to reach 370 of NVLink's 450 GB/s. A
# product of a few thousand rows keeps the units busy most of the time, but under the card's power cap.
PCIE, NVLINK, MEMORY, COMPUTE = 0.75, 0.70, 0.75, 0.50
THROUGH_HOST = 0.40  # between GPUs without NVLink: each byte crosses the root complex, or the host's memory twice


def of_copy(result: Result, record: Record) -> Limit | None:
    """The limit of one copy, or None if it is not known."""
    gpus, direction = result.environment["gpus"], str(record.case["direction"])
    if not gpus or direction == "host to host":
        return None
    spec = reference.gpu_spec(gpus[0]["name"])
    if direction.startswith("within"):
        return Limit(spec.mem_bw_gbs, "the memory's bandwidth", MEMORY) if spec and spec.mem_bw_gbs else None
    if not is_pair(direction):
        return _pcie(result, record, [0])  # copies from and to the host use GPU 0
    if _has_nvlink(result):
        return _nvlink(result, used=2)
    pcie = _pcie(result, record, [int(word) for word in direction.split() if word.isdigit()])
    return pcie and replace(pcie, least=THROUGH_HOST)


def is_pair(direction: str) -> bool:
    """Whether a copy goes from one GPU to another: 'device 0 to 1'."""
    return direction.startswith("device ") and "host" not in direction


def copy_rate(record: Record) -> float:
    """Effective GB/s. Within a device every byte counts twice, because it is read and written."""
    passes = 2 if str(record.case["direction"]).startswith("within") else 1
    return passes * float(record.case["bytes"] or 0) / record.median / 1e9


def of_all_reduce(result: Result, record: Record) -> Limit | None:
    """The link that limits bus bandwidth; None between nodes, where the network does and its rate is not known."""
    if record.case.get("nodes"):
        return None
    used = int(str(record.case["devices"]))
    if _has_nvlink(result):
        return _nvlink(result, used)
    pcie = _pcie(result, record, range(used))
    return pcie and replace(pcie, least=THROUGH_HOST)


def bus_bandwidth(record: Record) -> float:
    """nccl-tests' bus bandwidth in GB/s: 2 (n - 1)/n x bytes / time."""
    n = float(record.case["devices"] or 0)
    return 2 * (n - 1) / n * float(record.case["bytes"] or 0) / record.median / 1e9


def of_products(result: Result, dtype: str) -> Limit | None:
    """The chip's dense peak in TFLOP/s."""
    gpus = result.environment["gpus"]
    spec = reference.gpu_spec(gpus[0]["name"]) if gpus else None
    peak = spec and spec.peak_tflops.get(dtype)
    return Limit(peak, f"the dense peak in {dtype}", COMPUTE) if peak else None


def product_rate(record: Record) -> float:
    """TFLOP/s: 2 n^3 operations per product."""
    return 2 * float(record.case["size"] or 0) ** 3 * float(record.case["products"] or 0) / record.median / 1e12


def _has_nvlink(result: Result) -> bool:
    gpus = result.environment["gpus"]
    return bool(gpus and gpus[0]["nvlinks"])


def _nvlink(result: Result, used: int) -> Limit | None:
    """NVLink's limit; None if the vendor's rate is not known, because PCIe is not the limit then either.

    A GPU's links lead to a switch, or are shared out among the other GPUs. Which is not known here, so less is normal
    among few GPUs.
    """
    all_gpus = result.environment["machine"]["gpus"]  # also those that were not used, to which links may lead
    spec = reference.gpu_spec(all_gpus[0])
    if not (spec and spec.nvlink_one_way_gbs):
        return None
    return Limit(spec.nvlink_one_way_gbs, "NVLink's line rate", NVLINK * (used - 1) / max(1, len(all_gpus) - 1))


def _pcie(result: Result, record: Record, used: Iterable[int]) -> Limit | None:
    """The slowest link among the GPUs used, at the highest generation and width seen while this was measured."""
    found, gpus = [], result.environment["gpus"]
    for index in (index for index in used if index < len(gpus)):
        gpu = gpus[index]
        seen = [e.state.gpus[index] for e in record.telemetry if e.state and len(e.state.gpus) > index]
        gen, width = _most([gpu.pcie_gen for gpu in seen]), _most([gpu.pcie_width for gpu in seen])
        if gen and width:
            advice = _advice(gpu, gen, width)
            found.append(Limit(pcie_gbs(gen, width), f"PCIe {gen} x{width}", PCIE, advice))
    return min(found, key=lambda limit: limit.rate, default=None)


def _most(values: list[int | None]) -> int | None:
    return max((value for value in values if value), default=None)


def _advice(gpu: dict[str, int | None], gen: int, width: int) -> str:
    if width < (gpu["pcie_width_max"] or 0):
        return f"the card can do x{gpu['pcie_width_max']} but runs at x{width}: reseat it, or check its slot"
    if gen < (gpu["pcie_gen_max"] or 0):
        return f"the card can do PCIe {gpu['pcie_gen_max']} but runs at {gen}: check the slot, the riser and the BIOS"
    return ""


def pcie_gbs(generation: int, lanes: int) -> float:
    """One-way line rate in GB/s of a PCIe link."""
    return PCIE_LANE_GBS[generation] * lanes
