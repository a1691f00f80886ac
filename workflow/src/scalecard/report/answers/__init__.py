"""One module per question that is answered from several experiments of one platform, always of the same shape.

A docstring (its first line is the question, the rest says how to read the figure), `plot(measured) -> Figure`,
`findings(measured) -> list[Finding]` and `tables(measured) -> list[Table]`. An answer without findings and tables is
left out of the report: what it needs was not measured. A module may also offer `calculator(measured)`, the numbers with
which report.js computes for a model of the reader's.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType, ModuleType
from typing import Any

from scalecard.records.record import Result
from scalecard.records.strategies import Untimed
from scalecard.report import modules

Settings = Mapping[str, Mapping[str, Any]]
ORDER = ("why", "use", "forecast")
NO_SETTINGS: Settings = MappingProxyType({})
PARTS = {  # of a step, as they are called where they are not timed alone
    Untimed.RANKS: "ranks that exchange nothing",
    Untimed.THREADS: "threads with their copies",
    Untimed.LAYERS: "divided layers with their all-reduces",
    Untimed.STAGES: "stages at such micro-batches",
    Untimed.STAGE_PAIRS: "two stages on each device",
    Untimed.REPLICAS: "replicas with what they exchange",
}


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


def not_timed(*parts: Untimed) -> str:
    """'stages at such micro-batches are not timed alone'."""
    return f"{' and '.join(PARTS[part] for part in parts)} are not timed alone"


def measured(results: Sequence[Result], settings: Settings = NO_SETTINGS) -> Measured:
    """What was measured on the platform of the first of these results."""
    return Measured({r.experiment: r for r in results if r.platform == results[0].platform}, settings)


def names() -> list[str]:
    """Every answer, in the order in which they are asked; a new one comes last."""
    return sorted(modules.names(sys.modules[__name__]), key=lambda name: (*ORDER, name).index(name))


def load(name: str) -> ModuleType:
    """The answer of this name; ValueError says which ones exist."""
    return modules.load(sys.modules[__name__], name)
