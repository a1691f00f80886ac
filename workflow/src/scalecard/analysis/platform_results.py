"""The results of one platform, by experiment: what every answer is computed from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from scalecard.records.record import Result

Settings = Mapping[str, Mapping[str, Any]]
NO_SETTINGS: Settings = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Measured:
    """The results of one platform, by experiment; any of them may be missing.

    `settings` are the values of config.yaml that an answer needs, by the answer's name.
    """

    results: Mapping[str, Result]
    settings: Settings = field(default_factory=dict)

    def of(self, experiment: str) -> Result | None:
        """The experiment's result; None if it was not measured."""
        return self.results.get(experiment)

    @property
    def platform(self) -> str:
        """All results are of one."""
        return next(iter(self.results.values())).platform

    @property
    def emulated(self) -> bool:
        """Whether CPU workers and ranks stood in for GPUs: then nothing is advised."""
        return any(result.emulated for result in self.results.values())


def measured(results: Sequence[Result], settings: Settings = NO_SETTINGS) -> Measured:
    """What was measured on the platform of the first of these results."""
    return Measured({r.experiment: r for r in results if r.platform == results[0].platform}, settings)
