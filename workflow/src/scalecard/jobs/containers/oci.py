"""The command line of Docker and Podman: nothing but what a measurement needs.

No capabilities, no way to gain any, an image that cannot be changed, a /tmp and a /dev/shm of its own.
"""

import os
import resource
from collections.abc import Iterator

from scalecard.hardware.vendors.nvidia import nccl
from scalecard.jobs.containers import engines
from scalecard.jobs.containers.inside import Inside

STACK = 67108864  # bytes, as NVIDIA recommends for NCCL
HARDENED = (
    *("--cap-drop=ALL", "--security-opt", "no-new-privileges", "--read-only"),
    *("--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777"),  # executable, because compilers put what they make there
    *("--security-opt", "label=disable"),  # SELinux would hide the mounts
)


def command(engine: str, inside: Inside) -> list[str]:
    """Everything before the image's name."""
    host = engines.ask(engine)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # half as on the host: NCCL's ranks use it
    gpus = ["--device", "nvidia.com/gpu=all"] if host.cdi else ["--gpus", "all"]
    return [
        *(engine, "run", "--rm", *HARDENED, f"--shm-size={memory // 2}"),  # nothing is set aside
        *("--network", "host" if inside.online else "none"),
        *_user(host),
        # The host's process numbers, so that NVML's match ours; a process that shares them needs no init.
        *([*gpus, "--pid=host"] if inside.gpus else ["--init"]),
        *(["--device", str(nccl.VERBS)] if inside.online and nccl.VERBS.exists() else []),
        *(_limits(host) if inside.gpus or inside.online else []),
        *inside.each_mount(),
        *(part for key, value in inside.variables.items() for part in ("--env", f"{key}={value}")),
        *("--env", "HOME=/tmp", "--workdir", str(inside.project)),
    ]


def _user(host: engines.Host) -> list[str]:
    """Run as the caller, who then owns every file, with the caller's groups, which may be allowed the devices.

    Root in a rootless engine is the caller. (Podman's keep-id would first copy the whole image.)
    """
    if host.rootless:
        return ["--user", "0:0", *(["--group-add", "keep-groups"] if host.engine == "podman" else [])]
    groups = sorted({*os.getgroups()} - {os.getgid()})
    return ["--user", f"{os.getuid()}:{os.getgid()}", *(part for g in groups for part in ("--group-add", str(g)))]


def _limits(host: engines.Host) -> Iterator[str]:
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
