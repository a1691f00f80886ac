"""Run a command in the image that a marker names, or in the host's environment if it names none.

    python -m scalecard.jobs.containers.launch MARKER --data FOLDER --writable FOLDER... -- command arguments...

The project is mounted read-only, the writable folders writable, each at its own path. The command runs as the caller,
without network, and sees only the listed variables of the host's environment. The engine replaces this process, so
signals go to the engine and the exit status is its own.

A marker is the file that names the image, on which the experiments depend. An engine answers neither if it is a client
without its daemon, nor if it is a program that always fails.
"""

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from scalecard.hardware import isolation
from scalecard.records.atomic import write_atomically
from scalecard.records.strict_json import load_object

ENGINES = ("docker", "podman", "apptainer")
QUESTION = {
    "docker": ("docker", "info", "--format", "{{.ServerVersion}}"),
    "podman": ("podman", "info", "--format", "{{.Version.Version}}"),
    "apptainer": ("apptainer", "version"),
}
TIMEOUT = 30  # seconds
GONE = ("no such image", "no such object", "image not known", "failed to find image")  # in Docker's and Podman's words
SEES_GPUS = (
    "import torch; count = torch.cuda.device_count(); assert count, 'PyTorch sees no GPU in the image';"
    " [torch.ones(1, device=f'cuda:{i}').add_(1).item() for i in range(count)]"
)
OTHERWISE = "container: {engine: none} runs in the host's environment"
# In the words of NVIDIA's container tools, of PyTorch and of CUDA.
OLD_DRIVER = re.compile("unsatisfied condition: cuda|driver on your system is too old|driver version is insufficient")
NO_REASON = re.compile("Run '(docker|podman) .* for more information")  # the last line of newer engines


class NoEngine(ValueError):
    """An engine requested by name does not answer."""


def choose(wanted: str, *, shared: bool = False) -> tuple[str, str]:
    """(engine or 'none', why): the one requested or, with 'auto', the first that answers.

    `shared`: the image is for other nodes. Then auto considers only Apptainer, whose image is a file all nodes can see.
    NoEngine says what was tried and what to do.
    """
    if wanted == "none":
        return "none", "container.engine = none in config.yaml"
    tried = []
    for engine in (wanted,) if wanted != "auto" else ("apptainer",) if shared else ENGINES:
        silence = why_silent(engine)
        if not silence:
            return engine, "asked for in config.yaml" if wanted != "auto" else "the first engine that answers"
        tried.append(f"{engine}: {silence}")
    if wanted == "auto":
        return "none", f"no container engine answers ({'; '.join(tried)})"
    raise NoEngine(
        f"container.engine = {wanted}: it does not answer ({tried[0]}). Start it, or set container: {{engine: auto}} to"
        " use another, or {engine: none} to run in the host's environment"
    )


def why_silent(engine: str) -> str:
    """Why an engine does not answer; empty if it does."""
    command = " ".join(QUESTION[engine][:2])
    try:
        done = subprocess.run(QUESTION[engine], capture_output=True, text=True, timeout=TIMEOUT)
    except FileNotFoundError:
        return "not installed"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"`{command}` did not run: {error}"
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    if done.returncode == 0 and done.stdout.strip():
        return ""
    return f"`{command}` failed" + (f": {said[-1]}" if said else f" with status {done.returncode}")


@dataclass(frozen=True, kw_only=True)
class Marker:
    """The image that experiments run in. Engine 'none' is the host's environment; `why` says why it was chosen."""

    engine: str
    why: str
    image: str | None = None  # what the engine runs: an image id, a reference with digest, or the path of a .sif
    digest: str | None = None
    base: str | None = None
    lock: str | None = None
    packages: str | None = None  # of container.packages, as `lock` is of docker/requirements.lock
    size: int | None = None  # bytes


def read_marker(path: Path) -> Marker:
    """The marker in a file; ValueError names a file that holds none."""
    try:
        return Marker(**load_object(path))
    except TypeError as error:
        raise ValueError(f"{path}: describes no image ({error}); remove it, and run the workflow again") from error


def write_marker(path: Path, marker: Marker) -> None:
    """Write the marker, whole or not at all."""
    write_atomically(path, json.dumps(asdict(marker), indent=1) + "\n")


def forget_if_gone(path: Path) -> bool:
    """Remove the marker of an image that was deleted behind our back, so that it is rebuilt."""
    if not path.exists():
        return False
    found = read_marker(path)
    if found.engine == "none" or (found.image and has_image(found.engine, found.image)):
        return False
    path.unlink()
    return True


def has_image(engine: str, image: str) -> bool:
    """Whether the engine has the image. One that does not answer is assumed to, so that nothing is rebuilt."""
    if engine == "apptainer":
        return Path(image).exists()
    try:
        done = subprocess.run([engine, "image", "inspect", image], capture_output=True, text=True, timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return True
    said = (done.stderr + done.stdout).lower()
    return done.returncode == 0 or not any(words in said for words in GONE)


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
        if OLD_DRIVER.search(reason):
            from scalecard.hardware.vendors.nvidia import OWN_TORCH  # it takes half a second to import

            raise Unusable(f"{where}: the driver is too old for the image's CUDA ({reason}). Update it, or {OWN_TORCH}")
        raise Unusable(
            f"{where}: it starts containers, but does not pass the GPUs on ({reason}). Install the NVIDIA container"
            f" toolkit (for Podman, and for Docker with CDI, also run `nvidia-ctk cdi generate`). {OTHERWISE}"
        )


def _why_not(made: Marker, code: str, *, gpus: bool) -> str:
    """The last line of what a Python program said that failed in the image; empty if it did not."""
    trial = call(made, ["python", "-c", code], project=Path.cwd(), writable=[], gpus=gpus)
    done = subprocess.run(trial.argv, env=trial.environment, capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if line.strip() and not NO_REASON.search(line)]
    return "" if done.returncode == 0 else [*said[-1:], "no reason given"][0]


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
