"""One module a section of the report, always of the same shape.

A docstring (the first line is the section's title, the rest says how to read the figure), `plot(results) -> Figure`,
`findings(results) -> list[Finding]`. `results` are one experiment's, the current platform's first. No torch here.
"""

import importlib
import pkgutil
from dataclasses import dataclass
from types import ModuleType

SHARED = ("charts", "style", "words")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence computed from records. The report leads with those of the smallest `priority`.

    `headline` is the number in a few characters, for the matrix of experiments and platforms.
    """

    text: str
    headline: str = ""
    priority: int = 50


def names() -> list[str]:
    """Every section module, in alphabetical order."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in SHARED)


def load(name: str) -> ModuleType:
    """The section module of an experiment; ValueError says which there are."""
    if name not in names():
        raise ValueError(f"no section named '{name}' (known: {', '.join(names())})")
    return importlib.import_module(f"scalecard.sections.{name}")
