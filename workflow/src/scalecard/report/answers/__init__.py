"""One module per question that is answered from several experiments of one platform, always of the same shape.

A docstring (its first line is the question, the rest says how to read the figure), `plot(measured) -> Figure`,
`findings(measured) -> list[Finding]` and `tables(measured) -> list[Table]`. An answer without findings and tables is
left out of the report: what it needs was not measured. A module may also offer `calculator(measured)`, the numbers with
which report.js computes for a model of the reader's.
"""

import sys
from types import ModuleType

from scalecard.records.strategies import Untimed
from scalecard.report import toc

OF_ONE_DEVICE = ("save",)  # the others compare several devices with one
PARTS = {  # of a step, as they are called where they are not timed alone
    Untimed.RANKS: "ranks that exchange nothing",
    Untimed.THREADS: "threads with their copies",
    Untimed.LAYERS: "divided layers with their all-reduces",
    Untimed.STAGES: "stages at such micro-batches",
    Untimed.STAGE_PAIRS: "two stages on each device",
    Untimed.REPLICAS: "replicas with what they exchange",
    Untimed.HOST: "copies from and to the host's memory with its update",
}


def not_timed(*parts: Untimed) -> str:
    """'stages at such micro-batches are not timed alone'."""
    return f"{' and '.join(PARTS[part] for part in parts)} are not timed alone"


def names() -> list[str]:
    """Every answer, in the order in which they are asked; a new one comes last."""
    return toc.in_order(toc.names(sys.modules[__name__]))


def load(name: str) -> ModuleType:
    """The answer of this name; ValueError says which ones exist."""
    return toc.load(sys.modules[__name__], name)
