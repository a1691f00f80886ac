"""What this machine is: its probe, fingerprint and slug.

No torch here: the workflow probes on every start, and a login node or a laptop may not have it. Facts that change with
a reboot (clocks, load, free memory) are not part of the fingerprint.
"""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from scalecard.hardware import host, vendors
from scalecard.hardware.facts import LOCK

MAX_CPU_DEVICES = 4


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Hardware, driver and locked software. `num_devices`: GPUs, or CPU workers if there is no GPU."""

    kind: str  # of its devices, "cuda" or "cpu": the KIND of its vendor
    num_devices: int
    gpus: list[str]
    gpu_uuid_hashes: list[str]
    driver: str | None
    cpu: str
    cores: int
    software: str

    @property
    def emulated(self) -> bool:
        """Whether CPU workers and CPU ranks stand in for GPUs."""
        return self.kind == "cpu"

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits of the hardware, driver and lock: the same machine has the same digits."""
        facts = {k: v for k, v in asdict(self).items() if k != "num_devices"}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]

    def as_specific_as(self, expected: "Machine") -> "Machine":
        """This machine, without its GPUs' identities if `expected` describes any node of a kind."""
        return self.any_node() if expected.gpus and not expected.gpu_uuid_hashes else self

    def any_node(self) -> "Machine":
        """What the identically built nodes of a cluster have in common."""
        return replace(self, gpu_uuid_hashes=[])

    @property
    def slug(self) -> str:
        """A readable folder name, e.g. h200x1-3fa9c1 or epyc-2c-91bb02."""
        name = f"{_short(self.gpus[0])}x{len(self.gpus)}" if self.gpus else f"{_short(self.cpu)}-{self.cores}c"
        return f"{name}-{self.fingerprint[:6]}"

    @property
    def device_name(self) -> str:
        """The first GPU's name, or the CPU's if there is no GPU."""
        return self.gpus[0] if self.gpus else self.cpu

    def describe(self) -> str:
        """The machine in words, for the head of the report."""
        cpu = f"{self.cpu}, {self.cores} cores"
        if self.emulated:
            return cpu
        return f"{len(self.gpus)} x {self.gpus[0]}, driver {self.driver}; {cpu}"


def probe() -> Machine:
    """Read this machine. GPUs that CUDA_VISIBLE_DEVICES hides do not count."""
    vendor, cores = vendors.here(), host.usable_cores()
    with vendor.session() as gpus:
        names, uuid_hashes = [gpu.name for gpu in gpus], sorted(gpu.uuid_hash for gpu in gpus)
    return Machine(
        kind=vendor.KIND,
        num_devices=len(names) or min(cores, MAX_CPU_DEVICES),
        gpus=names,
        gpu_uuid_hashes=uuid_hashes,
        driver=vendor.driver_version(),
        cpu=host.cpu_model(),
        cores=cores,
        software=hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12] if LOCK.exists() else "unlocked",
    )


def from_facts(facts: dict[str, Any]) -> Machine:
    """The machine of a machine.json or of a result's environment."""
    return Machine(**facts)


def differences(then: Machine, now: Machine) -> str:
    """The facts in which two machines differ, in words."""
    a, b = asdict(then), asdict(now)
    return "; ".join(f"{key} {a[key]}, now {b[key]}" for key in a if a[key] != b[key])


def _short(name: str) -> str:
    """The distinctive word of a device's name: 'NVIDIA GeForce RTX 4090' -> 'rtx4090', 'AMD EPYC 7R13' -> 'epyc'.

    A slice of a GPU says so: 'NVIDIA A100-SXM4-40GB MIG 1g.5gb' -> 'a100mig1g5gb'.
    """
    name, _, part = name.partition(" MIG ")
    words = re.sub(r"\(\w+\)|NVIDIA|GeForce|Tesla|AMD|Intel|Processor|CPU", " ", name).split()
    if words[:1] in (["RTX"], ["GTX"], ["Xeon"]) and len(words) > 1:
        words = ["".join(words[:2])]
    short = (words or ["cpu"])[0].split("-")[0] + (f"mig{part}" if part else "")
    return re.sub(r"[^a-z0-9]+", "", short.lower()) or "cpu"


def threads_each(machine: Machine) -> int:
    """Intra-op threads of one CPU worker or rank: its share of the cores."""
    return max(1, machine.cores // machine.num_devices)


def provable(machine: Machine) -> int:
    """On how many devices strategies are proven: up to four, which CPU workers can be on any machine."""
    return 4 if machine.emulated else min(4, machine.num_devices)


def device_counts(num_devices: int) -> list[int]:
    """The powers of two up to N, and N: [1, 2, 4, 6] for 6."""
    powers = [2**i for i in range(num_devices.bit_length()) if 2**i <= num_devices]
    return sorted({*powers, num_devices})
