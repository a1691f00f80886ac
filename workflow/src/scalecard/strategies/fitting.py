"""What was seen to fit into the devices' memory, and which of that fits side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scalecard.measuring.variant import Variant
from scalecard.strategies.strategy import Strategy
from scalecard.strategies.trial import Trial

AS_TIMED = "compared with the plain loop as it is timed alone: the memory is too small for float64"


@dataclass(frozen=True)
class Fitting:
    """A variant that can be timed, and what it was seen to need: as timed, and for its proof."""

    strategy: Strategy
    variant: Variant
    trial: Trial
    proof: Trial


def side_by_side(fitting: Sequence[Fitting], memory: float) -> Iterator[list[Fitting]]:
    """Those that the GPUs hold at the same time, in as few groups as their order allows."""
    group = list[Fitting]()
    for one in fitting:
        if group and _needed([*group, one]) > memory:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _needed(group: Sequence[Fitting]) -> float:
    """Everything that is resident, and the most that any of them takes beside it, timed or proven."""
    return sum(one.trial.resident for one in group) + max(max(_beside(one), one.proof.peak) for one in group)


def _beside(one: Fitting) -> float:
    return one.trial.peak - one.trial.resident
