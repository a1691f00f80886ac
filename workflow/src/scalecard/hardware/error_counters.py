"""What hardware counts when something goes wrong, of GPUs and InfiniBand ports: worth a look before and after a load.

Sources: NVML API reference, "Device Queries" and "NvLink Methods"; Linux kernel, ABI/stable/sysfs-class-infiniband.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml

from scalecard.hardware import interconnect
from scalecard.hardware.optional_facts import Missing
from scalecard.hardware.vendors.nvidia import nvml

PORT_COUNTERS = {
    "symbol_error": "symbol errors",
    "link_downed": "link downed",
    "port_rcv_errors": "receive errors",
    "port_xmit_discards": "send discards",
}
Place = tuple[str, int | str]  # ("device", its number) or ("adapter", the name of its port)
Counts = dict[tuple[Place, str], int]


def read() -> Counts:
    """Every counter that answers, since the driver was loaded or, of ECC and rows, in the card's life."""
    found: Counts = {}
    with nvml.session() as gpus:
        for index, gpu in enumerate(gpus):
            for name, ask in _of_gpu(gpu.handle).items():
                value = Missing().ask(name, ask)
                if value is not None:
                    found[("device", index), name] = int(value)
    for port in sorted(interconnect.ADAPTERS.glob("*/ports/*")):
        for file, name in PORT_COUNTERS.items():
            value = Missing().ask(name, _number, port / "counters" / file)
            if value is not None:
                found[("adapter", port_name(port)), name] = value
    return found


def port_name(port: Path) -> str:
    """'mlx5_0 port 1' for /sys/class/infiniband/mlx5_0/ports/1."""
    return f"{port.parts[-3]} port {port.name}"


def link_rates() -> dict[str, float]:
    """Bytes per second of each InfiniBand port, by its name: '400 Gb/sec (4X NDR)' is 5e10."""
    rates = {}
    for port in sorted(interconnect.ADAPTERS.glob("*/ports/*")):
        text = Missing().ask("rate", (port / "rate").read_text)
        if text:
            rates[port_name(port)] = float(text.split()[0]) * 1e9 / 8
    return rates


def _of_gpu(handle: Any) -> dict[str, Callable[[], Any]]:
    corrected, uncorrected = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    return {
        "ECC corrected": lambda: nvml.ecc_errors(handle, corrected),
        "ECC uncorrected": lambda: nvml.ecc_errors(handle, uncorrected),
        "rows remapped": lambda: sum(pynvml.nvmlDeviceGetRemappedRows(handle)[:2]),
        "PCIe replays": lambda: pynvml.nvmlDeviceGetPcieReplayCounter(handle),
        "NVLink replays": lambda: _over_links(handle, pynvml.NVML_NVLINK_ERROR_DL_REPLAY),
        "NVLink CRC errors": lambda: _over_links(handle, pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT),
    }


def _over_links(handle: Any, counter: int) -> int | None:
    """The sum over the links that are up; None if there is none."""
    links = nvml.links_up(handle)
    return sum(pynvml.nvmlDeviceGetNvLinkErrorCounter(handle, link, counter) for link in links) if links else None


def _number(path: Path) -> int:
    return int(path.read_text())


@contextmanager
def counting_xids() -> Iterator[Callable[[], dict[int, int]]]:
    """How many XIDs, the driver's critical errors, each GPU has had meanwhile; GPUs that do not tell are left out."""
    with nvml.session() as gpus:
        events = Missing().ask("events", pynvml.nvmlEventSetCreate) if gpus else None
        kind = pynvml.nvmlEventTypeXidCriticalError
        listening = []
        if events is not None:
            for index, gpu in enumerate(gpus):
                try:
                    pynvml.nvmlDeviceRegisterEvents(gpu.handle, kind, events)
                except pynvml.NVMLError:
                    continue
                listening.append(index)
        uuids = {gpu.uuid: index for index, gpu in enumerate(gpus)}
        seen = dict.fromkeys(listening, 0)

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
