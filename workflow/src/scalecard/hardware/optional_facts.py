"""Facts that may be unavailable: each is then None, and the reason is kept."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pynvml


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

    def ask(self, key: str, question: Callable[..., Any], *args: Any) -> Any:
        try:
            return question(*args)
        except OSError as error:
            self.reasons[key] = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        except (pynvml.NVMLError, ValueError) as error:
            self.reasons[key] = str(error) or type(error).__name__
        return None
