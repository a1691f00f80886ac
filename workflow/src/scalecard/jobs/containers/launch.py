"""Run a command in the image that a marker names, or in the host's environment if it names none.

    python -m scalecard.jobs.containers.launch MARKER --data FOLDER --writable FOLDER... -- command arguments...

The project is mounted read-only, the writable folders writable, each at its own path. The command runs as the caller,
without network, and sees only the listed variables of the host's environment. The engine replaces this process, so
signals go to the engine and the exit status is its own.
"""

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scalecard.hardware import environment, lock, network
from scalecard.jobs.containers.marker import Marker, read

ALLOWED = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "OMP_NUM_THREADS", "SCALECARD_STRICT"),
    *("SCALECARD_NODES", "SCALECARD_NODE", "SCALECARD_RENDEZVOUS", "SCALECARD_TIMEOUT", "GLOO_SOCKET_IFNAME"),
)
ALLOWED_PREFIXES = ("NCCL_",)
ADVICE = (
    "Install the NVIDIA container toolkit (for Podman, also run `nvidia-ctk cdi generate`), or set container: {engine:"
    " none}"
)


class NoGpus(ValueError):
    """The engine works, but the host's GPUs are not visible inside."""


def command_line(
    marker: Marker,
    command: Sequence[str],
    *,
    project: Path,
    writable: Sequence[Path],
    gpus: bool,
    online: bool = False,
) -> list[str]:
    """The full command line. `writable`: existing folders; `gpus`: the host has some; `online`: the job spans nodes."""
    if marker.engine == "none":
        return list(command)
    assert marker.image, "an image was made or found"
    mounts = [(project, "ro"), *((path, "rw") for path in writable), (lock.LOCK, "rw")]
    inside = _Inside(mounts, {**allowed(os.environ), **_own(marker, project)}, project, gpus, online)
    engine = _apptainer(inside) if marker.engine == "apptainer" else _oci(marker.engine, inside)
    return [*engine, marker.image, *command]


class _Inside(NamedTuple):
    """What a container gets: (path, 'ro' or 'rw') mounts, variables, working folder, GPUs, the host's network."""

    mounts: Sequence[tuple[Path, str]]
    variables: Mapping[str, str]
    project: Path
    gpus: bool
    online: bool

    def each_mount(self, option: str) -> Iterator[str]:
        """The option for every mount, at the same path as outside."""
        for path, mode in self.mounts:
            yield from (option, f"{path}:{path}:{mode}")

    def each_variable(self) -> Iterator[str]:
        """The option for every variable, the same in all engines."""
        for key, value in self.variables.items():
            yield from ("--env", f"{key}={value}")


def _oci(engine: str, inside: _Inside) -> list[str]:
    """Docker and Podman. NCCL needs shared memory and, with GPUs, locked memory and a larger stack."""
    devices = ["--gpus", "all"] if engine == "docker" else ["--device", "nvidia.com/gpu=all"]
    memlock, stack = (_limit(engine, kind) for kind in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_STACK))
    limits = ["--ulimit", f"memlock={memlock}:{memlock}", "--ulimit", f"stack={stack}:{stack}"]
    infiniband = inside.online and network.VERBS.exists()
    limits += ["--pid=host"]  # so that NVML's process IDs match ours
    return [
        *(engine, "run", "--rm", "--init", "--ipc=host", "--network", "host" if inside.online else "none"),
        *(["--device", str(network.VERBS), "--cap-add", "IPC_LOCK"] if infiniband else []),
        *_user(engine),
        *([*devices, *limits] if inside.gpus else []),
        *inside.each_mount("--volume"),
        *inside.each_variable(),
        *("--workdir", str(inside.project)),
    ]


def _user(engine: str) -> list[str]:
    """Run as the caller, who then owns every file; without SELinux labels, which would hide the mounts."""
    if engine == "podman":
        same = ["--userns=keep-id"] if os.getuid() else ["--user", "0:0"]
        return [*same, "--security-opt", "label=disable"]
    return ["--user", "0:0" if _rootless_docker() else f"{os.getuid()}:{os.getgid()}"]


def _rootless_docker() -> bool:
    """Whether root inside the container is the caller outside."""
    try:
        done = subprocess.run(
            ["docker", "info", "--format", "{{.SecurityOptions}}"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "rootless" in done.stdout


def _limit(engine: str, kind: int) -> int:
    """The wanted limit if the engine may set it; rootless Podman cannot exceed the caller's hard limit."""
    hard = resource.getrlimit(kind)[1]
    wanted = 67108864 if kind == resource.RLIMIT_STACK else -1
    if engine == "docker" or os.getuid() == 0 or hard == resource.RLIM_INFINITY:
        return wanted
    return hard if wanted == -1 else min(hard, wanted)


def _apptainer(inside: _Inside) -> list[str]:
    """Apptainer shares the host's memory, limits, process IDs and user by default."""
    isolated = [] if inside.online else ["--net", "--network", "none"]
    if inside.online and network.VERBS.exists():
        inside = inside._replace(mounts=[*inside.mounts, (network.VERBS, "rw")])
    return [
        *("apptainer", "exec", "--cleanenv", "--contain", "--no-home", *isolated),
        *(["--nv"] if inside.gpus else []),
        *inside.each_mount("--bind"),
        *inside.each_variable(),
        *("--pwd", str(inside.project)),
    ]


def allowed(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of the host's environment that a measurement may see."""
    return {key: value for key, value in variables.items() if key in ALLOWED or key.startswith(ALLOWED_PREFIXES)}


def _own(marker: Marker, project: Path) -> dict[str, str]:
    """Variables for the process inside: where the code is, which image this is, and the host's commit."""
    return {
        "PYTHONPATH": str(project / "workflow" / "src"),
        "PYTHONNOUSERSITE": "1",
        "HOME": "/tmp",
        "SCALECARD_IMAGE_DIGEST": marker.digest or "",
        "SCALECARD_ENGINE": marker.engine,
        "SCALECARD_HOLDER": f"process {os.getpid()}",
        **_commit(),
    }


def _commit() -> dict[str, str]:
    """What git says on the host, or why it says nothing: inside there may be no git, or no right to read."""
    try:
        dirty = str(int(environment.has_changes()))
        return {"SCALECARD_COMMIT": environment.commit(), "SCALECARD_DIRTY": dirty}
    except OSError as error:
        return {"SCALECARD_NO_COMMIT": str(error)}


def has_gpus() -> bool:
    """Whether the host has NVIDIA devices; building and `snakemake -n` must work without them."""
    return Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()


def why_no_gpus(marker: Marker) -> str:
    """Why the host's GPUs are not visible in the image; empty if they are."""
    code = (
        "import torch; count = torch.cuda.device_count(); assert count, 'PyTorch sees no GPU in the image';"
        " [torch.ones(1, device=f'cuda:{i}').add_(1).item() for i in range(count)]"
    )
    argv = command_line(marker, ["python", "-c", code], project=Path.cwd(), writable=[], gpus=True)
    lock.lock_file()
    done = subprocess.run(argv, capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no reason given"])[-1]


def fetch(dataset: str, folder: Path) -> None:
    """Download the training images on the host: the container has no network. The experiment reports a failure."""
    if dataset in ("auto", "fashion-mnist") and not (folder / "FashionMNIST").exists():
        command = [sys.executable, "-m", "scalecard", "fetch", "--data-dir", str(folder)]
        subprocess.run(command, check=False)


def main() -> None:
    """Replace this process with the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("marker", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="writable folder of the training images")
    parser.add_argument("--fetch", default="none", help="dataset that the command needs")
    parser.add_argument("--writable", type=Path, nargs="+", required=True, help="further writable folders")
    split = sys.argv.index("--")
    args, command = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    marker = read(args.marker)
    writable = [folder.resolve() for folder in (args.data, *args.writable)]
    if marker.engine != "none":
        for folder in writable:
            folder.mkdir(parents=True, exist_ok=True)
        lock.lock_file()
        if os.environ.get("SCALECARD_NODE", "0") == "0":  # only the first of the nodes, which share the folder
            fetch(args.fetch, args.data)
    online = os.environ.get("SCALECARD_NODES", "1") != "1"
    argv = command_line(marker, command, project=Path.cwd(), writable=writable, gpus=has_gpus(), online=online)
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()
