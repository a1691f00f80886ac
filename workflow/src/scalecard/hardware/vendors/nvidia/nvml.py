"""What the NVIDIA driver says about its GPUs, through nvidia-ml-py: facts, state, and who else uses them.

A fact that a GPU or a virtual machine does not report, or that needs a missing driver, is None, and Missing keeps the
reason. Nothing here fails because a fact is missing.
"""

import hashlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pynvml

from scalecard.hardware.optional_facts import Missing, gpu_key

# Clock event reasons that mean the hardware was held back. A power cap is normal, and only reported.
SLOWDOWNS = {
    0x8: "hardware slowdown",
    0x20: "thermal slowdown (software)",
    0x40: "thermal slowdown (hardware)",
    0x80: "power brake",
}
POWER_CAP = {0x4: "power cap"}
# Programs that draw a desktop: named, but not somebody else's work.
DISPLAY_SERVERS = ("Xorg", "X", "Xwayland", "gnome-shell", "kwin_wayland", "kwin_x11", "mutter", "sway", "weston")


@dataclass(frozen=True)
class Gpu:
    """A GPU that this process may use, with the name that torch.cuda.get_device_name returns too."""

    name: str
    uuid: str
    handle: Any

    @property
    def uuid_hash(self) -> str:
        return hashlib.sha256(self.uuid.encode()).hexdigest()[:12]


@contextmanager
def session(missing: Missing | None = None) -> Iterator[list[Gpu]]:
    """The GPUs that CUDA will enumerate, in its order; their handles are valid inside. Empty without a driver."""
    missing = missing or Missing()
    if not _started(missing):  # outside of `except`, so that errors of the body do not mention this one
        yield []
        return
    try:
        yield missing.ask("gpus", _visible, missing) or []
    finally:
        pynvml.nvmlShutdown()


def _started(missing: Missing) -> bool:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        missing.reasons["gpus"] = f"no NVIDIA driver answers: {error}"
        return False
    return True


def _visible(missing: Missing) -> list[Gpu]:
    """CUDA_VISIBLE_DEVICES names GPUs by index (in PCI order, which the workflow sets) or by UUID.

    As in CUDA, the first invalid name hides those after it; a slice of a GPU (MIG) has its own UUID. CUDA uses the only
    slice there is even if its card is named; gpu_problems.py refuses what is not clear.
    """
    uuids = listed(missing)
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is not None:
        named = (_named(name.strip(), uuids) for name in wanted.split(","))
        uuids = list(itertools.takewhile(bool, named))
    gpus = ((uuid, pynvml.nvmlDeviceGetHandleByUUID(uuid)) for uuid in _or_their_slice(uuids))
    return [Gpu(pynvml.nvmlDeviceGetName(handle), uuid, handle) for uuid, handle in gpus]


def listed(missing: Missing | None = None) -> list[str]:
    """The UUIDs of the cards that answer, whatever CUDA_VISIBLE_DEVICES says, inside a session."""
    ask = (missing or Missing()).ask
    return [uuid for i in range(pynvml.nvmlDeviceGetCount()) if (uuid := ask(gpu_key(i), _uuid, i))]


def slices(handle: Any) -> list[str] | None:
    """The UUIDs of the slices of a card in MIG mode; None if it is not, or is a slice itself."""
    mode = Missing().ask("MIG mode", pynvml.nvmlDeviceGetMigMode, handle)
    if not mode or not mode[0]:
        return None
    found = []
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        part = Missing().ask("slice", pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)  # there may be gaps
        if part is not None:
            found.append(str(pynvml.nvmlDeviceGetUUID(part)))
    return found


def _or_their_slice(uuids: list[str]) -> list[str]:
    """The only slice, if all of these are cards in MIG mode and there is no other; else themselves."""
    parts = [slices(pynvml.nvmlDeviceGetHandleByUUID(uuid)) for uuid in uuids]
    every = [uuid for own in parts for uuid in own or []]
    return every if len(every) == 1 and None not in parts else uuids


def _uuid(index: int) -> str:
    return str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index)))


def _named(name: str, uuids: list[str]) -> str:
    """The UUID, or '' if there is no such GPU."""
    if name.startswith("MIG-"):
        return name if Missing().ask("slice", pynvml.nvmlDeviceGetHandleByUUID, name) is not None else ""
    if name.isdigit():
        return uuids[int(name)] if int(name) < len(uuids) else ""
    return next((uuid for uuid in uuids if name and uuid.startswith(name)), "")


def visible_gpus() -> list[Gpu]:
    """Names and UUIDs; the handles are invalid outside a session."""
    with session() as gpus:
        return gpus


def driver_version() -> str | None:
    """The driver's version, or None if there is no GPU."""
    with session() as gpus:
        return str(Missing().ask("driver", pynvml.nvmlSystemGetDriverVersion)) if gpus else None


def cuda_version() -> int | None:
    """The newest major version of CUDA that the driver supports, inside a session; None if it does not say."""
    version = Missing().ask("cuda", pynvml.nvmlSystemGetCudaDriverVersion_v2)
    return None if version is None else version // 1000


def memory_bytes(gpu: Gpu) -> int | None:
    """All of its memory, inside a session."""
    memory = Missing().ask("memory", pynvml.nvmlDeviceGetMemoryInfo, gpu.handle)
    return memory and int(memory.total)


def pci_address(gpu: Gpu) -> str:
    """As in the kernel's /sys/bus/pci/devices, inside a session; NVMLError if the driver does not tell."""
    return address(pynvml.nvmlDeviceGetPciInfo(gpu.handle))


def details(missing: Missing, used: int | None = None) -> list[dict[str, Any]]:
    """One mapping per visible GPU, or per one of the first `used`: bytes, PCIe link, NVLinks, watts, MHz, ECC."""
    with session(missing) as gpus:
        return [
            _detail(gpu, lambda key, *args, i=i: missing.ask(gpu_key(i, key), *args))
            for i, gpu in enumerate(gpus[:used])
        ]


def _detail(gpu: Gpu, ask: Callable[..., Any]) -> dict[str, Any]:
    handle = gpu.handle
    memory = ask("memory_bytes", pynvml.nvmlDeviceGetMemoryInfo, handle)
    power = ask("power_limit_w", pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    power_max = ask("power_limit_max_w", pynvml.nvmlDeviceGetPowerManagementLimitConstraints, handle)
    ecc = ask("ecc", pynvml.nvmlDeviceGetEccMode, handle)
    return {
        "name": gpu.name,
        "uuid_hash": gpu.uuid_hash,
        "memory_bytes": memory and memory.total,
        "pcie_gen": ask("pcie_gen", pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        "pcie_gen_max": ask("pcie_gen_max", pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        "pcie_width": ask("pcie_width", pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        "pcie_width_max": ask("pcie_width_max", pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        "nvlinks": ask("nvlinks", num_up, handle),
        "power_limit_w": power and power / 1000,
        "power_limit_max_w": power_max and power_max[1] / 1000,
        "sm_clock_max_mhz": ask("sm_clock_max_mhz", pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM),
        "memory_clock_max_mhz": ask(
            "memory_clock_max_mhz", pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_MEM
        ),
        "ecc": ecc and bool(ecc[0]),
        "ecc_corrected": ask("ecc_corrected", ecc_errors, handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        "ecc_uncorrected": ask("ecc_uncorrected", ecc_errors, handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    }


def ecc_errors(handle: Any, kind: int) -> int:
    """Errors over the card's life."""
    return int(pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, pynvml.NVML_AGGREGATE_ECC))


def topology(missing: Missing, used: int | None = None) -> list[list[int | None]]:
    """NVML's common ancestor level for each pair of these GPUs (0 same board ... 50 across sockets)."""
    ancestor = pynvml.nvmlDeviceGetTopologyCommonAncestor
    with session() as visible:
        gpus = visible[:used]
        return [[missing.ask("topology", ancestor, a.handle, b.handle) if a != b else None for b in gpus] for a in gpus]


def nvlink_pairs(missing: Missing, used: int | None = None) -> list[list[int | None]]:
    """How many NVLinks lead from each of these GPUs to each other one; None on the diagonal, and if it is not known."""
    with session() as visible:
        gpus = visible[:used]
        ends = [missing.ask(gpu_key(i, "nvlink_pairs"), far_ends, gpu.handle) for i, gpu in enumerate(gpus)]
        places = [missing.ask(gpu_key(i, "nvlink_pairs"), pci_address, gpu) for i, gpu in enumerate(gpus)]
    return pairs(ends, places)


def state(gpu: Gpu, ours: Callable[[int], bool]) -> dict[str, float | int | None]:
    """The GPU now: SM clock in MHz, degrees Celsius, watts, clock event reasons (bits), bytes others' processes use.

    The PCIe link is read too: an idle card lowers its generation, so only a reading under load counts.
    """
    ask, handle = Missing().ask, gpu.handle
    power = ask("power", pynvml.nvmlDeviceGetPowerUsage, handle)
    return {
        "sm_clock_mhz": ask("clock", pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        "temperature_c": ask("temperature", pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        "power_w": power and power / 1000,
        "reasons": ask("reasons", pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle),
        "others_memory_bytes": ask("others", _memory_of_others, handle, ours),
        "pcie_gen": ask("pcie_gen", pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        "pcie_width": ask("pcie_width", pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
    }


def _memory_of_others(handle: Any, ours: Callable[[int], bool]) -> int:
    """A virtual machine or a container may see processes without their memory, which then counts as 0."""
    return sum(process.usedGpuMemory or 0 for process in _others(handle, ours))


def _others(handle: Any, ours: Callable[[int], bool]) -> list[Any]:
    return [process for process in _processes(handle) if not ours(process.pid) and not _display_server(process.pid)]


def _display_server(pid: int) -> str:
    """The name of the process if it is one, or ''; one that cannot be seen from here is none."""
    words = str(Missing().ask("name", pynvml.nvmlSystemGetProcessName, pid) or "").split()
    name = words[0].rsplit("/", 1)[-1] if words else ""
    return name if name in DISPLAY_SERVERS else ""


def _processes(handle: Any) -> list[Any]:
    found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle) + pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle)
    return list({process.pid: process for process in found}.values())


def num_others(gpu: Gpu, ours: Callable[[int], bool]) -> int:
    """How many processes that are neither ours nor a display server use the GPU."""
    return len(Missing().ask("others", _others, gpu.handle, ours) or [])


def display_servers(gpu: Gpu) -> dict[str, int]:
    """The display servers that use the GPU, and the bytes of its memory that each has."""
    found = [(_display_server(process.pid), process) for process in Missing().ask("all", _processes, gpu.handle) or []]
    return {name: process.usedGpuMemory or 0 for name, process in found if name}


def admits_one_process(gpu: Gpu) -> bool:
    """Whether the card's compute mode is EXCLUSIVE_PROCESS."""
    mode = Missing().ask("compute mode", pynvml.nvmlDeviceGetComputeMode, gpu.handle)
    return bool(mode == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)


def utilisation(gpu: Gpu) -> float | None:
    """The share of the driver's own window, under a second, in which a kernel ran: 0 to 1."""
    rates = Missing().ask("utilisation", pynvml.nvmlDeviceGetUtilizationRates, gpu.handle)
    return None if rates is None else rates.gpu / 100


def energy_joules(gpu: Gpu) -> float | None:
    """The card's energy counter, from Volta on."""
    energy = Missing().ask("energy", pynvml.nvmlDeviceGetTotalEnergyConsumption, gpu.handle)
    return None if energy is None else energy / 1000


def reasons_in_words(bits: int) -> list[str]:
    """The clock event reasons that a reader should know about."""
    return [words for bit, words in (SLOWDOWNS | POWER_CAP).items() if bits & bit]


SWITCH = "switch"


def num_up(handle: Any) -> int:
    """NVLinks that are up."""
    return len(links_up(handle))


def links_up(handle: Any) -> list[int]:
    """NVML does not say how many links there are, so ask until it has no such link."""
    up = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if pynvml.nvmlDeviceGetNvLinkState(handle, link) == pynvml.NVML_FEATURE_ENABLED:
                up.append(link)
        except (pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_NotSupported):
            break
    return up


def far_ends(handle: Any) -> list[str]:
    """What each NVLink that is up leads to: SWITCH, or a PCI address. OSError if the driver does not say."""
    ends = []
    for link in links_up(handle):
        kind = pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_UNKNOWN:
            raise OSError("the driver does not say where its NVLinks lead")
        is_switch = kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
        ends.append(SWITCH if is_switch else address(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)))
    return ends


def address(place: Any) -> str:
    """NVML's PCI address as the kernel writes it: '0000:1a:00.0'."""
    domain, rest = str(place.busId).lower().split(":", 1)
    return f"{domain[-4:]}:{rest}"


def pairs(ends: Sequence[list[str] | None], places: Sequence[str | None]) -> list[list[int | None]]:
    """How many links lead from each GPU to each other one, from the far ends of its links and the GPUs' own addresses.

    All links of a GPU that lead to NVSwitches lead to every other GPU that is on switches too. None on the diagonal,
    and where one of the two does not say.
    """
    every = range(len(ends))
    return [[None if a == b else _between(ends[a], ends[b], places[b]) for b in every] for a in every]


def _between(mine: list[str] | None, theirs: list[str] | None, place: str | None) -> int | None:
    if mine is None or theirs is None or place is None:
        return None
    return mine.count(SWITCH) if SWITCH in theirs else mine.count(place)
