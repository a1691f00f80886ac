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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scalecard import host, nvml

ROOT = Path(__file__).parents[3]
LOCK = ROOT / "docker" / "requirements.lock"
MAX_CPU_DEVICES = 4
PACKAGES = {
    "torch": ("torch",),
    "torchvision": ("torchvision",),
    "cuda": ("nvidia-cuda-runtime", "cuda-toolkit"),
    "cudnn": ("nvidia-cudnn-cu13",),
    "nccl": ("nvidia-nccl-cu13",),
}


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

    def alike(self, expected: "Machine") -> "Machine":
        """Without the GPUs' identities where `expected` describes any node of its kind and not one machine."""
        return self.any_node() if expected.gpus and not expected.gpu_uuid_hashes else self

    def any_node(self) -> "Machine":
        """What the nodes of a cluster that are built alike have in common."""
        return replace(self, gpu_uuid_hashes=[])

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
    gpus, cores = nvml.visible_gpus(), host.usable_cores()
    return Machine(
        kind="cuda" if gpus else "cpu",
        num_devices=len(gpus) or min(cores, MAX_CPU_DEVICES),
        gpus=[gpu.name for gpu in gpus],
        gpu_uuid_hashes=sorted(gpu.uuid_hash for gpu in gpus),
        driver=nvml.driver_version(),
        cpu=host.cpu_model(),
        cores=cores,
        software=_digest(LOCK.read_bytes())[:12] if LOCK.exists() else "unlocked",
    )


def from_facts(facts: dict[str, Any]) -> Machine:
    """The machine of a machine.json or of a result's environment."""
    return Machine(**facts)


def differences(then: Machine, now: Machine) -> str:
    """The facts in which two machines differ, in words."""
    a, b = asdict(then), asdict(now)
    return "; ".join(f"{key} {a[key]}, now {b[key]}" for key in a if a[key] != b[key])


def environment(machine: Machine) -> dict[str, Any]:
    """Everything about hardware and software that a reader may need to judge a number.

    A fact that is not to be had is None, and `missing` says why. No host names, user names, serial numbers or
    environment dumps: reports get published.
    """
    missing = nvml.Missing()
    return {
        "fingerprint": machine.fingerprint,
        "emulated": machine.emulated,
        "host": host.hashed_name(),
        "machine": asdict(machine),
        "gpus": nvml.details(missing),
        "topology": nvml.topology(missing),
        **host.facts(missing),
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
        **{name: missing.ask(name, _version_of, packages) for name, packages in PACKAGES.items()},
        "lock": machine.software,
        "container": missing.ask("container", _image),
        "container_engine": _engine(),
        **_commit(missing),
        "missing": missing.reasons,
    }


def _short(name: str) -> str:
    """The telling word of a device's name: 'NVIDIA GeForce RTX 4090' -> 'rtx4090', 'AMD EPYC 7R13 ...' -> 'epyc'."""
    words = re.sub(r"\(\w+\)|NVIDIA|GeForce|Tesla|AMD|Intel|Processor|CPU", " ", name).split()
    if words[:1] in (["RTX"], ["GTX"], ["Xeon"]) and len(words) > 1:
        words = ["".join(words[:2])]
    return re.sub(r"[^a-z0-9]+", "", (words or ["cpu"])[0].split("-")[0].lower()) or "cpu"


def _digest(data: str | bytes) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def _version_of(packages: tuple[str, ...]) -> str:
    """The version of the first package that is installed."""
    for package in packages:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise OSError(f"{' or '.join(packages)} is not installed")


def _image() -> str:
    """The digest of the image around this process: from the launcher, or that of the .sif that Snakemake runs."""
    if os.environ.get("SCALECARD_IMAGE_DIGEST"):
        return os.environ["SCALECARD_IMAGE_DIGEST"]
    sif = os.environ.get("APPTAINER_CONTAINER")
    if not sif:
        raise OSError("not run in a container")
    with open(sif, "rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _engine() -> str:
    if os.environ.get("SCALECARD_ENGINE"):
        return os.environ["SCALECARD_ENGINE"]
    return "apptainer" if os.environ.get("APPTAINER_CONTAINER") else "none"


def _commit(missing: nvml.Missing) -> dict[str, str | bool | None]:
    """What git says here, or, in a container without git, what the launcher asked it on the host."""
    if os.environ.get("SCALECARD_COMMIT"):
        return {"commit": os.environ["SCALECARD_COMMIT"], "dirty": os.environ.get("SCALECARD_DIRTY") == "1"}
    commit = missing.ask("commit", _git, "rev-parse", "HEAD")
    changes = missing.ask("dirty", _git, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(*args: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True, timeout=10)
    except subprocess.TimeoutExpired as error:
        raise OSError("git did not answer") from error
    if done.returncode:
        raise OSError("not a git repository")
    return done.stdout.strip()
