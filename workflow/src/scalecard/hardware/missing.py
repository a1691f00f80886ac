"""Facts that may be unavailable: each is then None, and the reason is kept."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pynvml


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
