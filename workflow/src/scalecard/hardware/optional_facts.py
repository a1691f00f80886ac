"""Facts that may be unavailable: each is then None, and the reason is kept."""

import importlib.metadata
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar


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
    """The version of the first package that is installed."""
    for package in packages:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise OSError(f"{' or '.join(packages)} is not installed")
