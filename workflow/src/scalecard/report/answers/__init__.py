"""Questions that are answered from several experiments of one platform, one module per answer, always the same shape.

A docstring (its first line is the question, the rest says how to read the figure), `plot(platforms) -> Figure` with the
current platform first, and for one platform `findings(measured) -> list[Finding]` and `tables(measured) ->
list[Table]`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scalecard.records.record import Result


@dataclass(frozen=True)
class Measured:
    """What was measured on one platform, by experiment; one may be missing.

    `settings` are the values of config.yaml that an answer needs, by the answer's name.
    """

    results: Mapping[str, Result]
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def of(self, experiment: str) -> Result | None:
        return self.results.get(experiment)

    @property
    def platform(self) -> str:
        return next(iter(self.results.values())).platform

    @property
    def emulated(self) -> bool:
        return any(result.emulated for result in self.results.values())
