"""What a container gets of the host - variables, mounts, GPUs and network - and the command line that gives it that.

Docker and Podman: nothing but what a measurement needs. No capabilities, no way to gain any, an image that cannot be
changed, a /tmp and a /dev/shm of its own.

Apptainer shares the host's limits, process numbers and user by default. Variables travel as APPTAINERENV_*, because
--env splits its value at commas. The caller's own variables of that kind, and those that would mount or allow more, are
left out.
"""

import csv
import io
import json
import os
import resource
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scalecard.hardware import environment, isolation
from scalecard.hardware.facts import PROJECT
from scalecard.hardware.vendors.nvidia import nccl
from scalecard.jobs.containers.launch import TIMEOUT, Marker

ALLOWED = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "OMP_NUM_THREADS", "SCALECARD_STRICT", "TORCH_DIST_USE_NCCL2"),
    *("SCALECARD_NODES", "SCALECARD_NODE", "SCALECARD_RENDEZVOUS", "SCALECARD_TIMEOUT", "GLOO_SOCKET_IFNAME"),
)
# They name the host's interfaces and networks, and a container without network has neither.
OF_THE_NETWORK = ("NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME", "NCCL_NET", "GLOO_SOCKET_IFNAME")
LOOPBACK = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_OOB_NET_IFNAME": "lo", "NCCL_NET": "Socket"}
NCCL_CONF = Path("/etc/nccl.conf")
NCCL_TOPOLOGY = Path("/var/run/nvidia-topologyd/virtualTopology.xml")  # of a virtual machine; NCCL's own default
STACK = 67108864  # bytes, as NVIDIA recommends for NCCL
HARDENED = (
    *("--cap-drop=ALL", "--security-opt", "no-new-privileges", "--read-only"),
    *("--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777"),  # executable, because compilers put what they make there
    *("--security-opt", "label=disable"),  # SELinux would hide the mounts
)
# The options of `apptainer exec` that add to what is inside, each also read from APPTAINER_* and SINGULARITY_*.
ADDING = {
    f"{prefix}_{option}"
    for prefix in ("APPTAINER", "SINGULARITY")
    for option in (
        *("BIND", "BINDPATH", "MOUNT", "OVERLAY", "OVERLAYIMAGE", "SCRATCH", "SCRATCHDIR", "FUSESPEC", "HOME"),
        *("ENV", "ENV_FILE", "WRITABLE", "WRITABLE_TMPFS", "ADD_CAPS", "KEEP_PRIVS", "ALLOW_SETUID"),
    )
}


class Inside(NamedTuple):
    """What a container gets. `gpus`: the host has some; `online`: it has the host's network, as the job spans nodes."""

    mounts: Sequence[str]
    variables: Mapping[str, str]
    project: Path
    gpus: bool
    online: bool


def inside(marker: Marker, *, project: Path, writable: Sequence[Path], gpus: bool, online: bool) -> Inside:
    """What a container of this image gets: the project to read, existing folders to write, and NCCL's settings."""
    files = nccl_files(os.environ)
    variables = {**allowed(os.environ, online=online), **{key: str(path) for key, path in files.items()}}
    settings = [path for path in (NCCL_CONF, *files.values(), NCCL_TOPOLOGY) if path.is_file()]
    if settings and not online:
        variables |= LOOPBACK  # a variable precedes NCCL's files
    root = Path(os.path.normpath(project / PROJECT))
    mounts = [
        *(part for path in dict.fromkeys([root, project]) for part in _mount(path, "ro")),
        *(part for path in (*writable, isolation.LOCK) for part in _mount(path)),
        *(part for path in settings for part in _mount(path, "ro")),
    ]
    variables |= {
        "PYTHONPATH": str(root / "workflow" / "src"),
        "PYTHONNOUSERSITE": "1",
        "SCALECARD_IMAGE_DIGEST": marker.digest or "",
        "SCALECARD_ENGINE": marker.engine,
        "SCALECARD_HOLDER": f"process {os.getpid()}",
    }
    return Inside(mounts, variables | _commit(), project, gpus, online)


def _mount(path: Path, *access: str) -> list[str]:
    """Options that give it the same path inside, which every engine reads as a line of CSV: paths may have commas."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(["type=bind", f"source={path}", f"destination={path}", *access])
    return ["--mount", line.getvalue()]


def allowed(variables: Mapping[str, str], *, online: bool) -> dict[str, str]:
    """The variables of the host's environment that a measurement may see."""
    seen = {key: value for key, value in variables.items() if key in ALLOWED or key.startswith("NCCL_")}
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


def by_apptainer(given: Inside) -> tuple[list[str], dict[str, str]]:
    """Everything before the image's path, and the environment to start Apptainer in."""
    command = [
        *("apptainer", "exec", "--cleanenv", "--contain", "--no-privs"),
        *("--no-home", "--home", "/tmp"),  # a home like that of the other engines, and nothing of the caller's
        *([] if given.online else ["--net", "--network", "none"]),
        *(["--nv"] if given.gpus else []),
        *given.mounts,
        *(_mount(nccl.VERBS) if given.online and nccl.VERBS.exists() else []),
        *("--pwd", str(given.project)),
    ]
    other = ("APPTAINERENV_", "SINGULARITYENV_")
    kept = {key: value for key, value in os.environ.items() if key not in ADDING and not key.startswith(other)}
    return command, kept | {f"APPTAINERENV_{key}": value for key, value in given.variables.items()}


class Host(NamedTuple):
    """An engine as it runs here. `cdi`: it takes GPUs by their names in the Container Device Interface."""

    engine: str
    rootless: bool
    cdi: bool


def ask(engine: str) -> Host:
    """What Docker or Podman is here. Podman runs as the caller; Docker's daemon is asked."""
    if engine == "podman":
        return Host(engine, os.getuid() != 0, cdi=True)
    try:
        asked = ("docker", "info", "--format", "{{json .}}")
        done = subprocess.run(asked, capture_output=True, text=True, timeout=TIMEOUT)
        facts = json.loads(done.stdout) if done.returncode == 0 else {}
    except (OSError, subprocess.TimeoutExpired, ValueError):
        facts = {}
    rootless = any("rootless" in option for option in facts.get("SecurityOptions") or [])
    # Docker's daemon lists the GPUs that it finds by CDI since 28.2; since 25 it names the folders that specify them.
    listed = [str(device.get("ID", "")) for device in facts.get("DiscoveredDevices") or []]
    specified = [path for folder in facts.get("CDISpecDirs") or [] for path in Path(folder).glob("nvidia*")]
    return Host(engine, rootless, cdi=any(name.startswith("nvidia.com/gpu=") for name in listed) or bool(specified))


def by_docker_or_podman(engine: str, given: Inside) -> list[str]:
    """Everything before the image's name."""
    host = ask(engine)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # half as on the host: NCCL's ranks use it
    gpus = ["--device", "nvidia.com/gpu=all"] if host.cdi else ["--gpus", "all"]
    return [
        *(engine, "run", "--rm", *HARDENED, f"--shm-size={memory // 2}"),  # nothing is set aside
        *("--network", "host" if given.online else "none"),
        *_user(host),
        # The host's process numbers, so that NVML's match ours; a process that shares them needs no init.
        *([*gpus, "--pid=host"] if given.gpus else ["--init"]),
        *(["--device", str(nccl.VERBS)] if given.online and nccl.VERBS.exists() else []),
        *(_limits(host) if given.gpus or given.online else []),
        *given.mounts,
        *(part for key, value in given.variables.items() for part in ("--env", f"{key}={value}")),
        *("--env", "HOME=/tmp", "--workdir", str(given.project)),
    ]


def _user(host: Host) -> list[str]:
    """Run as the caller, who then owns every file, with the caller's groups, which may be allowed the devices.

    Root in a rootless engine is the caller. (Podman's keep-id would first copy the whole image.)
    """
    if host.rootless:
        return ["--user", "0:0", *(["--group-add", "keep-groups"] if host.engine == "podman" else [])]
    groups = sorted({*os.getgroups()} - {os.getgid()})
    return ["--user", f"{os.getuid()}:{os.getgid()}", *(part for g in groups for part in ("--group-add", str(g)))]


def _limits(host: Host) -> Iterator[str]:
    """Locked memory for InfiniBand and a larger stack for NCCL; a rootless engine cannot exceed its own limits.

    Podman's are the caller's. Those of a rootless Docker are its daemon's, which are left as they are.
    """
    if host.rootless and host.engine == "docker":
        return
    for name, kind, wanted in (("memlock", resource.RLIMIT_MEMLOCK, -1), ("stack", resource.RLIMIT_STACK, STACK)):
        hard = resource.getrlimit(kind)[1]
        if host.rootless and hard != resource.RLIM_INFINITY:
            wanted = hard if wanted == -1 else min(hard, wanted)
        yield from ("--ulimit", f"{name}={wanted}:{wanted}")
