"""What the NVIDIA driver says about its GPUs, through nvidia-ml-py: facts, state, and who else uses them.

A fact that a GPU or a virtual machine does not report, or that needs a missing driver, is None, and Missing keeps the
reason. Nothing here fails because a fact is missing.
"""

import hashlib
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

try:
    import pynvml
except ModuleNotFoundError:  # needed only where there is a GPU; __init__.py says so
    pynvml = None

from scalecard.hardware.facts import Missing, gpu_key
from scalecard.records.record import POWER_CAP, Slowdown

if pynvml:
    Missing.unanswered.add(pynvml.NVMLError)

NO_LIBRARY = "" if pynvml else "nvidia-ml-py, which reads the driver, is missing (`pip install nvidia-ml-py`)"
# By NVML's bits. A power cap is normal, and only reported.
CLOCK_REASONS = {
    0x8: Slowdown.HARDWARE,
    0x20: Slowdown.THERMAL_BY_SOFTWARE,
    0x40: Slowdown.THERMAL_BY_HARDWARE,
    0x80: Slowdown.POWER_BRAKE,
    0x4: POWER_CAP,
}
# Programs that draw a desktop: named, but not somebody else's work.
DISPLAY_SERVERS = ("Xorg", "X", "Xwayland", "gnome-shell", "kwin_wayland", "kwin_x11", "mutter", "sway", "weston")


@dataclass(frozen=True)
class NvidiaGpu:
    """A GPU that this process may use, by the handle of a session; the name is torch.cuda.get_device_name's too."""

    name: str
    uuid: str
    handle: Any

    @property
    def uuid_hash(self) -> str:
        return hashlib.sha256(self.uuid.encode()).hexdigest()[:12]

    def pci_address(self) -> str:
        return _address(pynvml.nvmlDeviceGetPciInfo(self.handle))

    @property
    def memory_bytes(self) -> int | None:
        memory = Missing().ask("memory", pynvml.nvmlDeviceGetMemoryInfo, self.handle)
        return memory and int(memory.total)

    def facts(self, ask: Callable[..., Any]) -> dict[str, Any]:
        handle = self.handle
        memory = ask("memory_bytes", pynvml.nvmlDeviceGetMemoryInfo, handle)
        power = ask("power_limit_w", pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        power_max = ask("power_limit_max_w", pynvml.nvmlDeviceGetPowerManagementLimitConstraints, handle)
        ecc = ask("ecc", pynvml.nvmlDeviceGetEccMode, handle)
        clock = pynvml.nvmlDeviceGetMaxClockInfo
        return {
            "name": self.name,
            "uuid_hash": self.uuid_hash,
            "memory_bytes": memory and memory.total,
            "pcie_gen": ask("pcie_gen", pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            "pcie_gen_max": ask("pcie_gen_max", pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
            "pcie_width": ask("pcie_width", pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
            "pcie_width_max": ask("pcie_width_max", pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
            "nvlinks": ask("nvlinks", lambda: len(self._links_up())),
            "power_limit_w": power and power / 1000,
            "power_limit_max_w": power_max and power_max[1] / 1000,
            "sm_clock_max_mhz": ask("sm_clock_max_mhz", clock, handle, pynvml.NVML_CLOCK_SM),
            "memory_clock_max_mhz": ask("memory_clock_max_mhz", clock, handle, pynvml.NVML_CLOCK_MEM),
            "ecc": ecc and bool(ecc[0]),
            "ecc_corrected": ask("ecc_corrected", self._ecc_errors, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            "ecc_uncorrected": ask("ecc_uncorrected", self._ecc_errors, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        }

    def common_ancestor(self, other: "NvidiaGpu") -> int:
        return int(pynvml.nvmlDeviceGetTopologyCommonAncestor(self.handle, other.handle))

    def far_ends(self) -> list[str | None]:
        ends = list[str | None]()
        for link in self._links_up():
            kind = pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(self.handle, link)
            if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_UNKNOWN:
                raise OSError("the driver does not say where its NVLinks lead")
            is_switch = kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
            ends.append(None if is_switch else _address(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(self.handle, link)))
        return ends

    def state(self, ours: Callable[[int], bool]) -> dict[str, Any]:
        ask, handle = Missing().ask, self.handle
        power = ask("power", pynvml.nvmlDeviceGetPowerUsage, handle)
        bits = ask("reasons", pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        others = ask("others", self._others, ours)
        # A virtual machine or a container may see processes without their memory, which then counts as 0.
        others_memory = None if others is None else sum(process.usedGpuMemory or 0 for process in others)
        return {
            "sm_clock_mhz": ask("clock", pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
            "temperature_c": ask("temperature", pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
            "power_w": power and power / 1000,
            "reasons": None if bits is None else [reason for bit, reason in CLOCK_REASONS.items() if bits & bit],
            "others_memory_bytes": others_memory,
            "pcie_gen": ask("pcie_gen", pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            "pcie_width": ask("pcie_width", pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        }

    @property
    def energy_joules(self) -> float | None:
        """The card's energy counter, from Volta on."""
        energy = Missing().ask("energy", pynvml.nvmlDeviceGetTotalEnergyConsumption, self.handle)
        return None if energy is None else energy / 1000

    @property
    def utilisation(self) -> float | None:
        rates = Missing().ask("utilisation", pynvml.nvmlDeviceGetUtilizationRates, self.handle)
        return None if rates is None else rates.gpu / 100

    @property
    def admits_one_process(self) -> bool:
        """Whether the card's compute mode is EXCLUSIVE_PROCESS."""
        mode = Missing().ask("compute mode", pynvml.nvmlDeviceGetComputeMode, self.handle)
        return bool(mode == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)

    def num_others(self, ours: Callable[[int], bool]) -> int:
        return len(Missing().ask("others", self._others, ours) or [])

    def display_servers(self) -> dict[str, int]:
        found = [(_display_server(process.pid), process) for process in Missing().ask("all", self._processes) or []]
        return {name: process.usedGpuMemory or 0 for name, process in found if name}

    def error_counters(self) -> dict[str, Callable[[], int | None]]:
        """Sources: NVML API reference, "Device Queries" and "NvLink Methods"."""
        handle, ecc = self.handle, self._ecc_errors
        return {
            "ECC corrected": partial(ecc, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            "ECC uncorrected": partial(ecc, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            "rows remapped": lambda: sum(pynvml.nvmlDeviceGetRemappedRows(handle)[:2]),
            "PCIe replays": partial(pynvml.nvmlDeviceGetPcieReplayCounter, handle),
            "NVLink replays": partial(self._link_errors, pynvml.NVML_NVLINK_ERROR_DL_REPLAY),
            "NVLink CRC errors": partial(self._link_errors, pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT),
        }

    def _ecc_errors(self, kind: int) -> int:
        """Errors over the card's life."""
        return int(pynvml.nvmlDeviceGetTotalEccErrors(self.handle, kind, pynvml.NVML_AGGREGATE_ECC))

    def _links_up(self) -> list[int]:
        """NVML does not say how many links there are, so ask until it has no such link."""
        up = []
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            try:
                if pynvml.nvmlDeviceGetNvLinkState(self.handle, link) == pynvml.NVML_FEATURE_ENABLED:
                    up.append(link)
            except (pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_NotSupported):
                break
        return up

    def _link_errors(self, counter: int) -> int | None:
        """The sum of a counter over the links that are up; None if there is none."""
        errors, links = pynvml.nvmlDeviceGetNvLinkErrorCounter, self._links_up()
        return sum(errors(self.handle, link, counter) for link in links) if links else None

    def _others(self, ours: Callable[[int], bool]) -> list[Any]:
        return [one for one in self._processes() if not ours(one.pid) and not _display_server(one.pid)]

    def _processes(self) -> list[Any]:
        computing = pynvml.nvmlDeviceGetComputeRunningProcesses(self.handle)
        drawing = pynvml.nvmlDeviceGetGraphicsRunningProcesses(self.handle)
        return list({process.pid: process for process in computing + drawing}.values())


def _address(place: Any) -> str:
    """NVML's PCI address as the kernel writes it: '0000:1a:00.0'."""
    domain, rest = str(place.busId).lower().split(":", 1)
    return f"{domain[-4:]}:{rest}"


def _display_server(pid: int) -> str:
    """The name of the process if it is one, or ''; one that cannot be seen from here is none."""
    words = str(Missing().ask("name", pynvml.nvmlSystemGetProcessName, pid) or "").split()
    name = words[0].rsplit("/", 1)[-1] if words else ""
    return name if name in DISPLAY_SERVERS else ""


@contextmanager
def session(missing: Missing | None = None) -> Iterator[list[NvidiaGpu]]:
    """The GPUs that CUDA will enumerate, in its order; their handles are valid inside. Empty without a driver."""
    missing = missing or Missing()
    if not missing.ask("gpus", _started):
        yield []
        return
    try:
        yield missing.ask("gpus", _visible, missing) or []
    finally:
        pynvml.nvmlShutdown()


def _started() -> bool:
    if NO_LIBRARY:
        raise OSError(NO_LIBRARY)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise OSError(f"no NVIDIA driver answers: {error}") from error
    return True


def _visible(missing: Missing) -> list[NvidiaGpu]:
    """CUDA_VISIBLE_DEVICES names GPUs by index (in PCI order, which the workflow sets) or by UUID.

    As in CUDA, the first invalid name hides those after it; a slice of a GPU (MIG) has its own UUID. CUDA uses the only
    slice there is even if its card is named; __init__.py refuses what is not clear.
    """
    uuids = listed(missing)
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is not None:
        named = (_named(name.strip(), uuids) for name in wanted.split(","))
        uuids = list(itertools.takewhile(bool, named))
    gpus = ((uuid, pynvml.nvmlDeviceGetHandleByUUID(uuid)) for uuid in _or_their_slice(uuids))
    return [NvidiaGpu(pynvml.nvmlDeviceGetName(handle), uuid, handle) for uuid, handle in gpus]


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


def driver_version() -> str | None:
    """The driver's version, or None if there is no GPU."""
    with session() as gpus:
        return str(Missing().ask("driver", pynvml.nvmlSystemGetDriverVersion)) if gpus else None


def cuda_version() -> int | None:
    """The newest major version of CUDA that the driver supports, inside a session; None if it does not say."""
    version = Missing().ask("cuda", pynvml.nvmlSystemGetCudaDriverVersion_v2)
    return None if version is None else version // 1000


@contextmanager
def counting_faults() -> Iterator[Callable[[], dict[int, int]]]:
    """XIDs, the driver's critical errors."""
    with session() as gpus:
        events = Missing().ask("events", pynvml.nvmlEventSetCreate) if gpus else None
        seen = dict[int, int]()
        for index, gpu in enumerate(gpus if events is not None else ()):
            with suppress(pynvml.NVMLError):
                pynvml.nvmlDeviceRegisterEvents(gpu.handle, pynvml.nvmlEventTypeXidCriticalError, events)
                seen[index] = 0
        uuids = {gpu.uuid: index for index, gpu in enumerate(gpus)}

        def counts() -> dict[int, int]:
            while seen:
                try:
                    event = pynvml.nvmlEventSetWait_v2(events, 0)
                except pynvml.NVMLError:  # a timeout: nothing is left
                    break
                index = uuids.get(str(pynvml.nvmlDeviceGetUUID(event.device)))
                if index in seen:
                    seen[index] += 1
            return dict(seen)

        try:
            yield counts
        finally:
            if events is not None:
                pynvml.nvmlEventSetFree(events)
