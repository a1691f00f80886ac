"""The environment recorded in each result: hardware, software and provenance, read on the worker that measured.

No torch here. A fact that cannot be read is None, and `missing` says why. No host names, user names, serial numbers or
environment dumps: reports get published.
"""

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scalecard.hardware import host, nvml
from scalecard.hardware.machine import ROOT, Machine
from scalecard.hardware.missing import Missing

GIT_TIMEOUT = 10  # seconds
ENGLISH = {"LC_ALL": "C"}
PACKAGES = {
    "torch": ("torch",),
    "torchvision": ("torchvision",),
    "cuda": ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "cuda-toolkit"),
    "cudnn": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
    "nccl": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
}


def environment(machine: Machine) -> dict[str, Any]:
    """Everything about hardware and software that a reader may need to judge a number.

    Only the GPUs that are used are described: the first `machine.num_devices`. result.schema.json describes each field.
    """
    missing = Missing()
    used = machine.num_devices
    return {
        "fingerprint": machine.fingerprint,
        "emulated": machine.emulated,
        "host": host.hashed_name(),
        "machine": asdict(machine),
        "gpus": nvml.details(missing, used),
        "topology": nvml.topology(missing, used),
        **host.facts(missing),
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
        **{name: missing.ask(name, version_of, packages) for name, packages in PACKAGES.items()},
        "lock": machine.software,
        "container": missing.ask("container", _image),
        "container_engine": _engine(),
        **_commit(missing),
        "missing": missing.reasons,
    }


def git(*args: str, folder: Path = ROOT) -> str:
    """What git prints in a folder, without the trailing newline; OSError says why there is no answer."""
    try:
        done = subprocess.run(
            ["git", *args], cwd=folder, capture_output=True, text=True, timeout=GIT_TIMEOUT, env=os.environ | ENGLISH
        )
    except FileNotFoundError as error:
        raise OSError("git is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise OSError("git did not answer") from error
    if done.returncode:  # what git says may name paths, and reports get published
        known = "not a git repository" in done.stderr
        raise OSError("not a git repository" if known else f"git {args[0]} failed with status {done.returncode}")
    return done.stdout.strip()


def commit(folder: Path = ROOT) -> str:
    """The commit of the project's code; OSError as in `git`, or if the repository around it does not track it."""
    if not git("ls-files", "--", str(Path(__file__).relative_to(ROOT)), folder=folder):
        raise OSError("the git repository around this code does not track it")
    return git("rev-parse", "HEAD", folder=folder)


def has_changes(folder: Path = ROOT) -> bool:
    """Whether tracked files differ from the commit; OSError as in `commit`."""
    commit(folder)
    return bool(git("status", "--porcelain", "--untracked-files=no", "--", ".", folder=folder))


def version_of(packages: tuple[str, ...]) -> str:
    """The version of the first package that is installed."""
    for package in packages:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise OSError(f"{' or '.join(packages)} is not installed")


def _image() -> str:
    """The digest of the image this process runs in: from the launcher, or of the .sif that Snakemake runs."""
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


def _commit(missing: Missing) -> dict[str, str | bool | None]:
    """What git says here or, in a container, what the launcher read from it on the host."""
    told, why_not = (os.environ.get(f"SCALECARD_{name}", "") for name in ("COMMIT", "NO_COMMIT"))
    if told:
        return {"commit": told, "dirty": os.environ.get("SCALECARD_DIRTY") == "1"}
    if why_not:
        missing.reasons |= {"commit": why_not, "dirty": why_not}
        return {"commit": None, "dirty": None}
    return {"commit": missing.ask("commit", commit), "dirty": missing.ask("dirty", has_changes)}
