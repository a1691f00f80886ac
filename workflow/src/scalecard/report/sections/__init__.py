"""One module per section of the report, always of the same shape.

A docstring (its first line is the section's title, the rest says how to read the figure), `plot(results) -> Figure` for
one experiment's results, the current platform's first, and for one result `findings(result) -> list[Finding]` and
`nightly(result) -> Iterator[Number]`, what to follow from night to night. A module may also offer `published(result)`,
our values of the published metrics if the workload is the same, `judge(result)`, its rates beside the hardware's
limits, `tiles(result)`, a verdict and a number for each part of the machine, `topology(result)`, how its GPUs are
linked, and `overview(result)`, one table of everything. No torch here.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from scalecard.records.record import Record
from scalecard.report import modules


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence computed from records. The report leads with the smallest `priority`.

    `headline` is the number in a few characters, for the matrix of experiments and platforms.
    """

    text: str
    headline: str = ""
    priority: int = 50


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number to follow from night to night: a record's time or, with an `amount` in `unit` x s, its rate.

    The same `label` is the same number on every night, so it names sizes, and no device that is slowest by chance.
    """

    label: str
    record: Record
    amount: float = 0.0
    unit: str = "s"


def by_priority(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, those to act on first."""
    return sorted(findings, key=lambda finding: finding.priority)


def headline(findings: Sequence[Finding]) -> str:
    """The most important number, in a few characters."""
    return next((finding.headline for finding in by_priority(findings) if finding.headline), "not measured")


def names() -> list[str]:
    """Every section, in alphabetical order."""
    return modules.names(sys.modules[__name__])


def load(name: str) -> ModuleType:
    """The section of this name; ValueError says which ones exist."""
    return modules.load(sys.modules[__name__], name)
