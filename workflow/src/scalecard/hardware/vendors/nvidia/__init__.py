"""NVIDIA: facts and state through NVML (nvml.py), what CUDA adds to PyTorch (runtime.py), and NCCL (nccl.py).

What is wrong with the GPUs is found before anything is measured: lost, cut into slices, an old driver. What PyTorch
itself sees is compared in runtime.py.
"""

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scalecard.hardware.facts import Missing, locked_version, version_of
from scalecard.hardware.vendors.nvidia import nccl as collectives
from scalecard.hardware.vendors.nvidia import nvml
from scalecard.hardware.vendors.nvidia.nvml import counting_faults, driver_version, session

__all__ = ["KIND", "PACKAGES", "collectives", "counting_faults", "driver_version", "notes", "problems", "session"]

KIND = "cuda"
PACKAGES: Mapping[str, Sequence[str]] = {
    "cuda": ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "cuda-toolkit"),
    "cudnn": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
    "nccl": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
}
DEVICES = Path("/dev")
PCI = Path("/sys/bus/pci/devices")
NVIDIA, DISPLAY = "0x10de", "0x03"  # PCI's numbers of the vendor, and of every display controller: no sound device
HIDE_ALL = ("", "-1", "NoDevFiles")  # values of CUDA_VISIBLE_DEVICES with which no GPU is wanted; Slurm sets the last
OLDEST_DRIVER = {12: 525, 13: 580}  # by CUDA's major version
OWN_TORCH = (
    "measure with another PyTorch, 2.11 or newer, that is built for it: in the image, by `container: {base_image:"
    " 'pytorch/pytorch:2.11.0-cuda12.8-cudnn9-runtime'}` in config.yaml, or on the host, by `make OWN_TORCH=1"
    " PYTHON=/path/to/its/python` (docs/offline.md)"
)
ON_THE_CPU = "set CUDA_VISIBLE_DEVICES=-1 to measure the CPU"


def problems(*, other_torch: bool = False) -> list[str]:
    """One line per problem, with what to do; empty if all is well, or if CUDA_VISIBLE_DEVICES hides every GPU.

    `other_torch`: which CUDA the PyTorch needs that is to use them is known only where it is.
    """
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is not None and wanted.split(",")[0].strip() in HIDE_ALL:
        return []
    if nvml.NO_LIBRARY:
        here = any((DEVICES / name).exists() for name in ("nvidiactl", "dxg"))
        return [f"a GPU is here, but {nvml.NO_LIBRARY}. Install it, or {ON_THE_CPU}"] if here else []
    missing = Missing()
    with nvml.session(missing) as gpus:
        listed = nvml.listed() if gpus or "gpus" not in missing.reasons else []
        found = [*(_lost(listed, missing) if wanted is None else _not_there(wanted, gpus)), *_cut(gpus)]
        old = () if other_torch else _old_driver()
        return found + ([*old, *_forced_precision()] if gpus else [])


def notes() -> list[str]:
    """GPUs that the kernel sees, in a container the host's as well, and the driver does not list."""

    def read(card: Path, name: str) -> str:
        return str(Missing().ask(name, (card / name).read_text) or "").strip()

    cards = list(PCI.iterdir()) if PCI.exists() else []
    count = sum(read(card, "vendor") == NVIDIA and read(card, "class").startswith(DISPLAY) for card in cards)
    which = f"{count} NVIDIA GPU{'s are' if count > 1 else ' is'}"
    return [f"{which} on the PCI bus, but none that the NVIDIA driver lists: the CPU is measured"] if count else []


def _lost(listed: Sequence[str], missing: Missing) -> Iterator[str]:
    """GPUs that the kernel or Slurm gives to this process, and that NVML does not list."""
    # A scheduler's control group forbids to open those of other jobs.
    nodes = (path for path in DEVICES.glob("nvidia[0-9]*") if re.fullmatch(r"nvidia\d+", path.name))
    usable = sum(os.access(node, os.R_OK | os.W_OK) for node in nodes)
    slurm = os.environ.get("SLURM_GPUS_ON_NODE", "")
    given = {"/dev/nvidia* has": usable, "SLURM_GPUS_ON_NODE is": int(slurm) if slurm.isdigit() else 0}
    for who, count in given.items():
        if count <= len(listed):
            continue
        if not listed:
            reason = missing.reasons.get("gpus", "the NVIDIA driver lists none").rstrip(".")
            yield f"{who} {count}, but {reason}. Repair the driver (does `nvidia-smi` answer?), or {ON_THE_CPU}"
        else:
            yield (
                f"{who} {count}, but the driver lists only {len(listed)}: a GPU is lost (see `nvidia-smi` and `dmesg`)."
                " Reset or restart, or set CUDA_VISIBLE_DEVICES to those to measure"
            )
        return


def _not_there(wanted: str, gpus: Sequence[nvml.NvidiaGpu]) -> Iterator[str]:
    """The first name in CUDA_VISIBLE_DEVICES that is no GPU; CUDA drops it and all after it without a word."""
    names = [name.strip() for name in wanted.split(",")]
    if len(gpus) < len(names) and names[len(gpus)] not in HIDE_ALL:
        yield f"CUDA_VISIBLE_DEVICES = {wanted}: the driver lists no GPU '{names[len(gpus)]}'"


def _cut(gpus: Sequence[nvml.NvidiaGpu]) -> Iterator[str]:
    """Cards in MIG mode, if it is not clear what CUDA would use: it uses one slice, and no whole card beside it."""
    slices = {index: own for index, gpu in enumerate(gpus) if (own := nvml.slices(gpu.handle)) is not None}
    if not slices:
        return
    which = ", ".join(f"GPU {index} ({gpus[index].name})" for index in slices)
    named = [uuid for own in slices.values() for uuid in own]
    whole = [gpu.uuid for index, gpu in enumerate(gpus) if index not in slices]
    one = [f"one of its slices: {', '.join(named)}"] if named else []
    rest = [f"whole GPUs: {','.join(whole)}"] if whole else []
    advice = (
        f"set CUDA_VISIBLE_DEVICES to {', or to '.join(one + rest)}" if one + rest else f"make one, or {ON_THE_CPU}"
    )
    yield f"{which}: MIG mode, with {len(named)} slices, of which CUDA uses only one; {advice}"


def _old_driver() -> Iterator[str]:
    """The driver must support the CUDA version that the installed PyTorch brings; unknown if it brings none.

    Without PyTorch it is the image's.
    """
    brings = version_of if importlib.util.find_spec("torch") else locked_version
    brought, supported = Missing().ask("cuda", brings, PACKAGES["cuda"]), nvml.cuda_version()
    if brought and supported is not None and supported < (needed := int(brought.split(".")[0])):
        oldest = f" (driver {OLDEST_DRIVER[needed]} or newer)" if needed in OLDEST_DRIVER else ""
        yield (
            f"driver {nvml.driver_version()} supports CUDA {supported}, but this PyTorch needs CUDA {needed}{oldest}:"
            f" update the driver, {OWN_TORCH}, or {ON_THE_CPU}"
        )


def _forced_precision() -> Iterator[str]:
    """NVIDIA's own switch overrides PyTorch's settings, without a trace in them."""
    value = os.environ.get("NVIDIA_TF32_OVERRIDE")
    if value is not None:
        does = "it computes float32 as TF32, or TF32 as float32, whatever is asked"
        yield f"NVIDIA_TF32_OVERRIDE = {value}: {does}; unset it"
