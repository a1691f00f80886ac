"""Facts that may be unavailable: each is then None, with the reason. Also versions, and where the project is."""

import importlib.metadata
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).parents[4]
PROJECT = Path(os.path.relpath(ROOT))  # as Snakemake's inputs name it: elsewhere if the workflow is another's module
LOCK = ROOT / "docker" / "requirements.lock"  # what the image has, and the environment that `make` creates


def gpu_key(index: int, fact: str = "") -> str:
    """The key of a GPU's fact, or of a GPU that does not answer at all: 'gpus.3.clock', 'gpus.3'."""
    return f"gpus.{index}.{fact}" if fact else f"gpus.{index}"


def silent_gpus(reasons: Mapping[str, str]) -> list[int]:
    """The GPUs that do not answer at all."""
    return [int(found[1]) for key in reasons if (found := re.fullmatch(r"gpus\.(\d+)", key))]


@dataclass
class Missing:
    """Answers a question, or notes under its key why there is no answer."""

    reasons: dict[str, str] = field(default_factory=dict)
    unanswered: ClassVar[set[type[Exception]]] = {ValueError}  # what drivers' libraries raise comes with their modules

    def ask(self, key: str, question: Callable[..., Any], *args: Any) -> Any:
        try:
            return question(*args)
        except OSError as error:
            self.reasons[key] = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        except tuple(self.unanswered) as error:
            self.reasons[key] = str(error) or type(error).__name__
        return None


def version_of(packages: Sequence[str]) -> str:
    """The version of the first package that is installed; OSError if none is."""
    for package in packages:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise OSError(f"{' or '.join(packages)} is not installed")


def locked_version(packages: Sequence[str]) -> str:
    """The version of the first of these packages that is locked; OSError if none is."""
    versions = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK.read_text(), re.MULTILINE))
    for package in packages:
        if package in versions:
            return str(versions[package])
    raise OSError(f"{' or '.join(packages)} is not in {LOCK.name}")
