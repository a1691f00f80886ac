"""Run a command in the image that a marker names, or in the host's environment if it names none.

    python -m scalecard.jobs.containers.launch MARKER --data FOLDER --writable FOLDER... -- command arguments...

The project is mounted read-only, the writable folders writable, each at its own path. The command runs as the caller,
without network, and sees only the listed variables of the host's environment. The engine replaces this process, so
signals go to the engine and the exit status is its own.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scalecard.hardware import isolation
from scalecard.jobs.containers.engines import Marker, read_marker

SEES_GPUS = (
    "import torch; count = torch.cuda.device_count(); assert count, 'PyTorch sees no GPU in the image';"
    " [torch.ones(1, device=f'cuda:{i}').add_(1).item() for i in range(count)]"
)
OTHERWISE = "container: {engine: none} runs in the host's environment"


class Call(NamedTuple):
    """A command, and the environment to start it in."""

    argv: list[str]
    environment: Mapping[str, str]


def call(
    marker: Marker,
    command: Sequence[str],
    *,
    project: Path,
    writable: Sequence[Path],
    gpus: bool,
    online: bool = False,
) -> Call:
    """How to run a command. `writable`: existing folders; `gpus`: the host has some; `online`: the job spans nodes."""
    if marker.engine == "none":
        return Call(list(command), os.environ)
    from scalecard.jobs.containers import inside  # it takes half a second to import

    assert marker.image, "an image was made or found"
    given = inside.inside(marker, project=project, writable=writable, gpus=gpus, online=online)
    if marker.engine == "apptainer":
        start, variables = inside.by_apptainer(given)
        return Call([*start, marker.image, *command], variables)
    return Call([*inside.by_docker_or_podman(marker.engine, given), marker.image, *command], os.environ)


def has_gpus() -> bool:
    """Whether the host has NVIDIA devices; building and `snakemake -n` must work without them."""
    return Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()


def fetch(dataset: str, folder: Path, marker: Marker) -> None:
    """Download the training images on the host, as what measures has no network; the experiment reports a failure.

    A host without PyTorch does it in a container that has the host's.
    """
    if dataset not in ("auto", "fashion-mnist") or (folder / "FashionMNIST").exists():
        return
    command = ["-m", "scalecard", "fetch", "--data-dir", str(folder.resolve())]
    here = Call([sys.executable, *command], os.environ)
    if importlib.util.find_spec("torch") is None:
        here = call(
            marker, ["python", *command], project=Path.cwd(), writable=[folder.resolve()], gpus=False, online=True
        )
    subprocess.run(here.argv, env=here.environment, check=False)


class Unusable(ValueError):
    """The engine answers and has the image, but no container of it can be used here; the message says why."""


def refuse_unusable(made: Marker) -> None:
    """Start a container, then one with the host's GPUs, if it has any. Unusable says which of the two failed."""
    if made.engine == "none":
        return
    isolation.make_lock_file()
    where = f"container.engine = {made.engine}"
    if reason := _why_not(made, "pass", gpus=False):
        raise Unusable(f"{where}: it does not start a container ({reason}). {OTHERWISE}")
    if has_gpus() and (reason := _why_not(made, SEES_GPUS, gpus=True)):
        raise Unusable(
            f"{where}: it starts containers, but does not pass the GPUs on ({reason}). Install the NVIDIA container"
            f" toolkit (for Podman, and for Docker with CDI, also run `nvidia-ctk cdi generate`). {OTHERWISE}"
        )


def _why_not(made: Marker, code: str, *, gpus: bool) -> str:
    """The last line of what a Python program said that failed in the image; empty if it did not."""
    trial = call(made, ["python", "-c", code], project=Path.cwd(), writable=[], gpus=gpus)
    done = subprocess.run(trial.argv, env=trial.environment, capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no reason given"])[-1]


def main() -> None:
    """Replace this process with the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("marker", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="writable folder of the training images")
    parser.add_argument("--fetch", default="none", help="dataset that the command needs")
    parser.add_argument("--writable", type=Path, nargs="+", required=True, help="further writable folders")
    split = sys.argv.index("--")
    args, command = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    marker = read_marker(args.marker)
    writable = [folder.resolve() for folder in (args.data, *args.writable)]
    if marker.engine != "none":
        for folder in writable:
            folder.mkdir(parents=True, exist_ok=True)
        isolation.make_lock_file()
        if os.environ.get("SCALECARD_NODE", "0") == "0":  # only the first of the nodes, which share the folder
            fetch(args.fetch, args.data, marker)
    online = os.environ.get("SCALECARD_NODES", "1") != "1"
    made = call(marker, command, project=Path.cwd(), writable=writable, gpus=has_gpus(), online=online)
    os.execvpe(made.argv[0], made.argv, made.environment)


if __name__ == "__main__":
    main()
