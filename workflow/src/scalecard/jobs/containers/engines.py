"""Which container engine answers, and the marker: the file that names its image, on which the experiments depend.

A client without its daemon, or a program that always fails, does not answer.
"""

import json
import os
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

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
