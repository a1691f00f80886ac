"""What hardware counts when something goes wrong, of GPUs and InfiniBand ports: worth a look before and after a load.

Source: Linux kernel, ABI/stable/sysfs-class-infiniband.
"""

from pathlib import Path

from scalecard.hardware import vendors
from scalecard.hardware.facts import Missing
from scalecard.hardware.vendors.nvidia import nccl

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
    with vendors.session() as gpus:
        for index, gpu in enumerate(gpus):
            for name, ask in gpu.error_counters().items():
                value = Missing().ask(name, ask)
                if value is not None:
                    found[("device", index), name] = int(value)
    for port in sorted(nccl.ADAPTERS.glob("*/ports/*")):
        for file, name in PORT_COUNTERS.items():
            value = Missing().ask(name, lambda: int((port / "counters" / file).read_text()))
            if value is not None:
                found[("adapter", port_name(port)), name] = value
    return found


def port_name(port: Path) -> str:
    """'mlx5_0 port 1' for /sys/class/infiniband/mlx5_0/ports/1."""
    return f"{port.parts[-3]} port {port.name}"


def link_rates() -> dict[str, float]:
    """Bytes per second of each InfiniBand port, by its name: '400 Gb/sec (4X NDR)' is 5e10."""
    rates = {}
    for port in sorted(nccl.ADAPTERS.glob("*/ports/*")):
        text = Missing().ask("rate", (port / "rate").read_text)
        if text:
            rates[port_name(port)] = float(text.split()[0]) * 1e9 / 8
    return rates
