"""The user's further packages: container.packages of config.yaml, a lock file that the image gets on top."""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CONTEXT = Path("docker")
LOCK = CONTEXT / "requirements.lock"
DOCKERFILE, DEFINITION, SCRIPT = (CONTEXT / f"packages.{suffix}" for suffix in ("Dockerfile", "def", "sh"))
HOW = "`uv pip compile --generate-hashes --constraint docker/requirements.lock` writes such a file"
CREDENTIALS = re.compile(r"://[^/\s\"']*@")


def problems(container: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the file, one line each."""
    file = container["packages"]
    if file is not None and (said := _why_unusable(file, container["image"])):
        yield f"container.packages = {file}: {said}"


def _why_unusable(file: str, image: str | None) -> str:
    if image:
        return f"not with container.image = {image}, which is used as it is; put them into that image"
    if Path(file).is_absolute():
        return "must be relative to this folder"
    if not os.path.isfile(file):  # Path's own raises for a name that is too long
        return "no such file"
    if not Path(file).resolve().is_relative_to(Path.cwd().resolve()):
        return "must lie in this folder or below, so that a copy of the folder has it"
    return "" if b"--hash=" in Path(file).read_bytes() else f"must have a hash for every package; {HOW}"


def inputs(container: Mapping[str, Any]) -> list[str]:
    """The files that the image depends on, besides those of an image without further packages."""
    return [container["packages"], *map(str, (DOCKERFILE, DEFINITION, SCRIPT))] if container["packages"] else []


def digest(file: str) -> str:
    """Twelve hex digits of the file's SHA-256."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]


@contextmanager
def context(file: str) -> Iterator[Path]:
    """A folder with what Docker, Podman and Apptainer install the packages from."""
    with tempfile.TemporaryDirectory(dir=CONTEXT, prefix=".packages-") as name:
        for source, target in ((DOCKERFILE, "Dockerfile"), (SCRIPT, ""), (LOCK, ""), (file, "packages.lock")):
            shutil.copy(source, Path(name, target))
        yield Path(name)


def hidden(text: str) -> str:
    """The text without the user name and password of any address in it."""
    return CREDENTIALS.sub("://***@", text)
