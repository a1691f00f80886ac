"""The environment recorded in each result: hardware, software and provenance, read on the worker that measured.

No torch here. A fact that cannot be read is None, and `missing` says why. No host names, user names, serial numbers or
environment dumps: reports get published.
"""

import hashlib
import os
import platform
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scalecard.hardware import host, vendors
from scalecard.hardware.facts import ROOT, Missing, gpu_key, version_of
from scalecard.hardware.machine import Machine
from scalecard.hardware.vendors import Gpu

# Of a node, in every job another one.
IDENTITIES = ("host", "fingerprint", "gpu_uuid_hashes", "uuid_hash", "nccl_paths", "nodes")
SIF = "APPTAINER_CONTAINER"  # the variable in which Apptainer names its image
# How float32 is computed; devices.py sets it, and a tf32 that is measured beside it says so in its case.
FLOAT32 = {"float32_products": "float32", "float32_convolutions": "float32"}
PACKAGES = {
    "torch": ("torch",),
    "torchvision": ("torchvision",),
    **{library: names for vendor in vendors.VENDORS for library, names in vendor.PACKAGES.items()},
}


def environment(machine: Machine) -> dict[str, Any]:
    """Everything about hardware and software that a reader may need to judge a number.

    Only the GPUs that are used are described: the first `machine.num_devices`. result.schema.json describes each field.
    """
    missing = Missing()
    return {
        "fingerprint": machine.fingerprint,
        "emulated": machine.emulated,
        "host": host.hashed_name(),
        "machine": asdict(machine),
        **_gpus(missing, machine.num_devices),
        **host.facts(missing),
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
        **{name: missing.ask(name, version_of, packages) for name, packages in PACKAGES.items()},
        "lock": machine.software,
        "container": missing.ask("container", _image),
        "container_engine": os.environ.get("SCALECARD_ENGINE") or ("apptainer" if os.environ.get(SIF) else "none"),
        "packages": os.environ.get("SCALECARD_PACKAGES"),  # set by an image that has some
        **_commit(missing),
        **FLOAT32,
        "nccl_process_group": vendors.here().collectives.process_group(),
        "nccl_paths": {},
        "nodes": [],
        "missing": missing.reasons,
    }


def of_nodes(every: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each node of a job, by its environment: its hashed host, and in which facts it differs from the first one."""
    first, unknown = dict(_flat(every[0])), object()  # a fact may be None
    return [
        {
            "host": own["host"],
            "differs": [{"path": [*path], "value": v} for path, v in _flat(own) if first.get(path, unknown) != v],
        }
        for own in every
    ]


def _flat(facts: Any, *path: str | int) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """(path, scalar) pairs, without what tells two nodes of a kind apart."""
    if path and path[-1] in IDENTITIES:
        return
    if isinstance(facts, dict | list):
        for key, value in facts.items() if isinstance(facts, dict) else enumerate(facts):
            yield from _flat(value, *path, key)
    else:
        yield path, facts


def _gpus(missing: Missing, used: int) -> dict[str, Any]:
    """What the driver says of each GPU, its NUMA node, the cores near it, and how the GPUs are linked."""
    with vendors.session(missing) as visible:
        gpus = visible[:used]
        return {
            "gpus": [_gpu(index, gpu, missing) for index, gpu in enumerate(gpus)],
            "topology": [
                [missing.ask("topology", a.common_ancestor, b) if a != b else None for b in gpus] for a in gpus
            ],
            "nvlink_pairs": _link_pairs(gpus, missing),
        }


def _gpu(index: int, gpu: Gpu, missing: Missing) -> dict[str, Any]:
    """The cores are those that a process which drives this GPU is bound to."""

    def ask(fact: str, question: Callable[..., Any], *args: Any) -> Any:
        return missing.ask(gpu_key(index, fact), question, *args)

    facts, numa_node, cores = gpu.facts(ask), ask("numa_node", host.numa_node, gpu), ask("cores", host.cores_near, gpu)
    return {**facts, "numa_node": numa_node, "cores": cores and _spans(cores)}


def _link_pairs(gpus: Sequence[Gpu], missing: Missing) -> list[list[int | None]]:
    """How many links lead from each GPU to each other one, from the far ends of its links and the GPUs' own addresses.

    All links of a GPU that lead to switches lead to every other GPU that is on switches too. None on the diagonal, and
    where one of the two does not say.
    """
    keys = [gpu_key(index, "nvlink_pairs") for index in range(len(gpus))]
    ends = [missing.ask(key, gpu.far_ends) for key, gpu in zip(keys, gpus, strict=True)]
    places = [missing.ask(key, gpu.pci_address) for key, gpu in zip(keys, gpus, strict=True)]

    def links(a: int, b: int) -> int | None:
        known = a != b and None not in (ends[a], ends[b], places[b])
        return ends[a].count(None if None in ends[b] else places[b]) if known else None

    every = range(len(gpus))
    return [[links(a, b) for b in every] for a in every]


def _spans(cores: Sequence[int]) -> str:
    """[0, 1, 2, 8] as '0-2,8', like the kernel."""
    starts = [core for core in cores if core - 1 not in cores]
    ends = [core for core in cores if core + 1 not in cores]
    return ",".join(f"{a}-{b}" if a < b else f"{a}" for a, b in zip(starts, ends, strict=True))


def git(*args: str, folder: Path = ROOT) -> str:
    """What git prints in a folder, without the trailing newline; OSError says why there is no answer."""
    english = os.environ | {"LC_ALL": "C"}
    try:
        done = subprocess.run(["git", *args], cwd=folder, capture_output=True, text=True, timeout=10, env=english)
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


def _image() -> str:
    """The digest of the image this process runs in: from the launcher, or of the .sif that Snakemake runs."""
    if digest := os.environ.get("SCALECARD_IMAGE_DIGEST"):
        return digest
    sif = os.environ.get(SIF)
    if not sif:
        raise OSError("not run in a container")
    with open(sif, "rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _commit(missing: Missing) -> dict[str, str | bool | None]:
    """What git says here or, in a container, what the launcher read from it on the host."""
    told, why_not = (os.environ.get(f"SCALECARD_{name}", "") for name in ("COMMIT", "NO_COMMIT"))
    if told:
        return {"commit": told, "dirty": os.environ.get("SCALECARD_DIRTY") == "1"}
    if why_not:
        missing.reasons |= {"commit": why_not, "dirty": why_not}
        return {"commit": None, "dirty": None}
    return {"commit": missing.ask("commit", commit), "dirty": missing.ask("dirty", has_changes)}
