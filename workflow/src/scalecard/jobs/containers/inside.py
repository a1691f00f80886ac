"""What a container gets of the host, whichever engine runs it: variables, mounts, GPUs and network."""

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scalecard.hardware import environment, isolation
from scalecard.hardware.facts import PROJECT
from scalecard.jobs.containers.engines import Marker

ALLOWED = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "OMP_NUM_THREADS", "SCALECARD_STRICT", "TORCH_DIST_USE_NCCL2"),
    *("SCALECARD_NODES", "SCALECARD_NODE", "SCALECARD_RENDEZVOUS", "SCALECARD_TIMEOUT", "GLOO_SOCKET_IFNAME"),
)
ALLOWED_PREFIXES = ("NCCL_",)
# They name the host's interfaces and networks, and a container without network has neither.
OF_THE_NETWORK = ("NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME", "NCCL_NET", "GLOO_SOCKET_IFNAME")
LOOPBACK = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_OOB_NET_IFNAME": "lo", "NCCL_NET": "Socket"}
NCCL_CONF = Path("/etc/nccl.conf")
NCCL_TOPOLOGY = Path("/var/run/nvidia-topologyd/virtualTopology.xml")  # of a virtual machine; NCCL's own default


class Mount(NamedTuple):
    """A file or folder that has the same path inside."""

    path: Path
    writable: bool = False

    def __str__(self) -> str:
        """The value of --mount, which every engine reads as a line of CSV: a path may have a comma or a colon."""
        line = io.StringIO()
        fields = ["type=bind", f"source={self.path}", f"destination={self.path}"]
        csv.writer(line, lineterminator="").writerow([*fields, *([] if self.writable else ["ro"])])
        return line.getvalue()


class Inside(NamedTuple):
    """What a container gets. `gpus`: the host has some; `online`: it has the host's network, as the job spans nodes."""

    mounts: Sequence[Mount]
    variables: Mapping[str, str]
    project: Path
    gpus: bool
    online: bool

    def each_mount(self) -> Iterator[str]:
        """The option for every mount, the same in all engines."""
        for mount in self.mounts:
            yield from ("--mount", str(mount))


def inside(marker: Marker, *, project: Path, writable: Sequence[Path], gpus: bool, online: bool) -> Inside:
    """What a container of this image gets: the project to read, existing folders to write, and NCCL's settings."""
    files = nccl_files(os.environ)
    variables = {**allowed(os.environ, online=online), **{key: str(path) for key, path in files.items()}}
    settings = [path for path in (NCCL_CONF, *files.values(), NCCL_TOPOLOGY) if path.is_file()]
    if settings and not online:
        variables |= LOOPBACK  # a variable precedes NCCL's files
    root = Path(os.path.normpath(project / PROJECT))
    mounts = [
        *map(Mount, dict.fromkeys([root, project])),
        *(Mount(path, writable=True) for path in (*writable, isolation.LOCK)),
        *map(Mount, settings),
    ]
    variables |= {
        "PYTHONPATH": str(root / "workflow" / "src"),
        "PYTHONNOUSERSITE": "1",
        "SCALECARD_IMAGE_DIGEST": marker.digest or "",
        "SCALECARD_ENGINE": marker.engine,
        "SCALECARD_HOLDER": f"process {os.getpid()}",
    }
    return Inside(mounts, variables | _commit(), project, gpus, online)


def allowed(variables: Mapping[str, str], *, online: bool) -> dict[str, str]:
    """The variables of the host's environment that a measurement may see."""
    seen = {key: value for key, value in variables.items() if key in ALLOWED or key.startswith(ALLOWED_PREFIXES)}
    return {key: value for key, value in seen.items() if online or key not in OF_THE_NETWORK}


def nccl_files(variables: Mapping[str, str]) -> dict[str, Path]:
    """The user's files that NCCL reads, by the variable that names them inside, where there is another home."""
    conf = variables.get("NCCL_CONF_FILE") or Path.home() / ".nccl.conf"
    topology = variables.get("NCCL_TOPO_FILE")
    named = {"NCCL_CONF_FILE": conf, **({"NCCL_TOPO_FILE": topology} if topology else {})}
    return {key: Path(path).absolute() for key, path in named.items() if Path(path).is_file()}


def _commit() -> dict[str, str]:
    """What git says on the host, or why it says nothing: inside there may be no git, or no right to read."""
    try:
        dirty = str(int(environment.has_changes()))
        return {"SCALECARD_COMMIT": environment.commit(), "SCALECARD_DIRTY": dirty}
    except OSError as error:
        return {"SCALECARD_NO_COMMIT": str(error)}
