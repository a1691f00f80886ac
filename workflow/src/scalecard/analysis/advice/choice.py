"""The strategy to use for a workload, the runner-up, and whether they can be told apart."""

from collections.abc import Sequence
from dataclasses import dataclass

from scalecard.analysis.advice.strategy_runs import Place, timed
from scalecard.records.statistics import Ratio

HALF = 2.0  # times as long as the one that is recommended: what is to be avoided


@dataclass(frozen=True)
class Choice:
    """`best` has the highest rate; `others` follow, each with its time per sample over the best one's."""

    best: Place
    others: list[tuple[Place, Ratio]]

    @property
    def runner_up(self) -> tuple[Place, Ratio] | None:
        """The fastest of the others."""
        return self.others[0] if self.others else None

    @property
    def tied(self) -> list[Place]:
        """Those that cannot be told apart from the best one, or take the same time."""
        return [place for place, ratio in self.others if ratio.verdict != "slower"]

    @property
    def helps(self) -> bool:
        """Whether several devices are clearly faster than one."""
        return self.best.devices > 1 and all(place.devices > 1 for place in self.tied)


def choose(found: Sequence[Place], scaling: str) -> Choice | None:
    """The highest rate at a scaling; of those within 1 % of it, the one on the fewest devices. None if none was timed.

    Only what surely takes the same time gives way to fewer devices: what merely cannot be told apart does not.
    """
    able = sorted(timed(found, scaling), key=lambda place: -place.rate)
    if not able:
        return None
    same = [place for place in able if place is able[0] or place.time_over(able[0]).verdict == "same"]
    best = min(same, key=lambda place: (place.devices, -place.rate))
    others = [(place, place.time_over(best)) for place in able if place is not best]
    return Choice(best, others)


def avoid(found: Sequence[Place]) -> list[tuple[Place, str]]:
    """On the most devices, with one device's batch, what loses time, and why; the slowest first.

    Surely slower than one device, or surely less than half as fast as the best one on as many devices.
    """
    able = [place for place in timed(found, "strong") if place.devices > 1]
    most = max((place.devices for place in able), default=0)
    choice = choose([place for place in able if place.devices == most], "strong")
    if choice is None:
        return []
    lost = []
    for place, ratio in reversed(choice.others):
        if place.gain and place.gain.interval and place.gain.interval.high < 1:
            lost.append((place, "slower than one device"))
        elif ratio.interval and ratio.interval.low > HALF:
            lost.append((place, f"less than half as fast as {choice.best.strategy}"))
    return lost
