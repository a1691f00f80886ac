"""What this machine is: probe, fingerprint, slug, and the environment that goes into each result.

No torch here: the workflow probes on every start, and a login node or a laptop need not have it. Facts that change
with a reboot (clocks, load, free memory) are no part of the fingerprint.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from scalecard import nvml

ROOT = Path(__file__).parents[3]
LOCK = ROOT / "docker" / "requirements.lock"
MAX_CPU_DEVICES = 4


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Hardware, driver and locked software. `num_devices`: GPUs, or CPU workers where there is no GPU."""

    kind: str  # "cuda" or "cpu"
    num_devices: int
    gpus: list[str]
    gpu_uuid_hashes: list[str]
    driver: str | None
    cpu: str
    cores: int
    software: str

    @property
    def emulated(self) -> bool:
        return self.kind == "cpu"

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits of the hardware, driver and lock: same machine, same digits."""
        facts = {k: v for k, v in asdict(self).items() if k != "num_devices"}
        return _digest(json.dumps(facts, sort_keys=True))[:12]

    @property
    def slug(self) -> str:
        """A readable folder name, e.g. h200x1-3fa9c1 or epyc-2c-91bb02."""
        name = f"{_short(self.gpus[0])}x{len(self.gpus)}" if self.gpus else f"{_short(self.cpu)}-{self.cores}c"
        return f"{name}-{self.fingerprint[:6]}"

    @property
    def device_name(self) -> str:
        return self.gpus[0] if self.gpus else self.cpu

    def describe(self) -> str:
        """The machine in words, for the head of the report."""
        cpu = f"{self.cpu}, {self.cores} cores"
        if self.emulated:
            return cpu
        return f"{len(self.gpus)} x {self.gpus[0]}, driver {self.driver}; {cpu}"


def probe() -> Machine:
    """Read this machine. GPUs that CUDA_VISIBLE_DEVICES hides do not count."""
    gpus, cores = nvml.visible_gpus(), usable_cores()
    return Machine(
        kind="cuda" if gpus else "cpu",
        num_devices=len(gpus) or min(cores, MAX_CPU_DEVICES),
        gpus=[gpu.name for gpu in gpus],
        gpu_uuid_hashes=sorted(_digest(gpu.uuid)[:12] for gpu in gpus),
        driver=nvml.driver_version(),
        cpu=_cpu_model(),
        cores=cores,
        software=_digest(LOCK.read_bytes())[:12] if LOCK.exists() else _version("torch") or "unknown",
    )


def from_facts(facts: dict[str, Any]) -> Machine:
    """The machine of a machine.json or of a result's environment."""
    return Machine(**facts)


def environment(machine: Machine) -> dict[str, Any]:
    """Everything about hardware and software that a reader may need to judge a number.

    No host names, user names, serial numbers or environment dumps: reports get published.
    """
    return {
        "fingerprint": machine.fingerprint,
        "emulated": machine.emulated,
        "machine": asdict(machine),
        "gpus": nvml.details(),
        "topology": nvml.topology(),
        "ram_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
        "torch": _version("torch"),
        "torchvision": _version("torchvision"),
        "cuda": _cuda_version(),
        "cudnn": _version("nvidia-cudnn-cu13"),
        "nccl": _version("nvidia-nccl-cu13"),
        "container": os.environ.get("SCALECARD_IMAGE_DIGEST"),
        **_commit(),
    }


def usable_cores() -> int:
    """Cores this process may use: its affinity, and the CPU quota of its cgroup where one is set."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))


def _cpu_model() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return " ".join(found[1].split()) if found else platform.processor() or platform.machine()


def _short(name: str) -> str:
    """The telling word of a device's name: 'NVIDIA GeForce RTX 4090' -> 'rtx4090', 'AMD EPYC 7R13 ...' -> 'epyc'."""
    words = re.sub(r"\(\w+\)|NVIDIA|GeForce|Tesla|AMD|Intel|Processor|CPU", " ", name).split()
    if words[:1] in (["RTX"], ["GTX"], ["Xeon"]) and len(words) > 1:
        words = ["".join(words[:2])]
    return re.sub(r"[^a-z0-9]+", "", (words or ["cpu"])[0].split("-")[0].lower()) or "cpu"


def _digest(data: str | bytes) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cuda_version() -> str | None:
    return _version("nvidia-cuda-runtime") or _version("cuda-toolkit")


def _commit() -> dict[str, str | bool | None]:
    def git(*args: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit, changes = git("rev-parse", "HEAD"), git("status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}
