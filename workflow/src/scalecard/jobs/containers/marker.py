"""The marker of an image: a file that the experiments depend on, and that the launcher reads."""

import json
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from scalecard.records.atomic import write_atomically
from scalecard.records.strict_json import load_object

TIMEOUT = 30  # seconds
GONE = ("no such image", "no such object", "image not known", "failed to find image")  # in Docker's and Podman's words


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


def read(path: Path) -> Marker:
    """The marker in a file; ValueError names a file that holds none."""
    try:
        return Marker(**load_object(path))
    except TypeError as error:
        raise ValueError(f"{path}: describes no image ({error}); remove it, and run the workflow again") from error


def write(path: Path, marker: Marker) -> None:
    """Write the marker, whole or not at all."""
    write_atomically(path, json.dumps(asdict(marker), indent=1) + "\n")


def forget_if_gone(path: Path) -> bool:
    """Remove the marker of an image that was deleted behind our back, so that it is rebuilt."""
    if not path.exists():
        return False
    found = read(path)
    if found.engine == "none" or (found.image and exists(found.engine, found.image)):
        return False
    path.unlink()
    return True


def exists(engine: str, image: str) -> bool:
    """Whether the engine has the image. One that does not answer is assumed to, so that nothing is rebuilt."""
    if engine == "apptainer":
        return Path(image).exists()
    try:
        done = subprocess.run([engine, "image", "inspect", image], capture_output=True, text=True, timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return True
    said = (done.stderr + done.stdout).lower()
    return done.returncode == 0 or not any(words in said for words in GONE)
