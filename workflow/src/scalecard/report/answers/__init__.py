"""Questions that are answered from several experiments of one platform: one module per answer, of the same shape.

A docstring (its first line is the question, the rest says how to read the figure), `plot(platforms) -> Figure`, the
current platform first, and for one platform `findings(measured) -> list[Finding]` and
`tables(measured) -> list[strategy_table.Table]`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from scalecard.records.record import Result


@dataclass(frozen=True)
class Measured:
    """The results of one platform, by experiment; any may be missing, but not all."""

    results: Mapping[str, Result]

    def of(self, experiment: str) -> Result | None:
        """What was measured by an experiment."""
        return self.results.get(experiment)

    @property
    def platform(self) -> str:
        """The platform that all of them are of."""
        return next(iter(self.results.values())).platform

    @property
    def emulated(self) -> bool:
        """Whether CPU workers or CPU ranks stood in for GPUs."""
        return any(result.emulated for result in self.results.values())
