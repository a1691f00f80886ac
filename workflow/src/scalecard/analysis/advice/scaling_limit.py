"""Below which batch per device scaling collapses.

The rule: scaling has collapsed where a device surely (by the whole 95 % interval) does less than half of what it does
alone with the batch that it is timed with. Two measurements say so. Data parallelism with one device's batch shared by
all leaves each device less the more there are. One device alone with so few samples is an upper bound of that,
however good the network.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scalecard.analysis import ratio_text, step_records
from scalecard.analysis.advice.strategy_runs import Place, timed
from scalecard.records import strategies
from scalecard.records.record import Result
from scalecard.records.statistics import Ratio
from scalecard.records.strategies import Family

COLLAPSED = 0.5


@dataclass(frozen=True)
class Point:
    """So many samples on each device, and the share of its full rate at which each then works."""

    batch: float
    share: Ratio
    what: str

    @property
    def collapsed(self) -> bool:
        """Surely below half."""
        return self.share.interval is not None and self.share.interval.high < COLLAPSED

    @property
    def holds(self) -> bool:
        """Surely at or above half."""
        return self.share.interval is not None and self.share.interval.low >= COLLAPSED


@dataclass(frozen=True)
class Batches:
    """What was measured of a workload by the samples on each device, most samples first."""

    shared: list[Point]
    alone: list[Point]

    @property
    def collapse(self) -> Point | None:
        """Where scaling has collapsed, at the most samples per device."""
        return _first([*self.shared, *self.alone])

    @property
    def least(self) -> Point | None:
        """The fewest samples per device on several devices above any collapse."""
        below = self.collapse.batch if self.collapse else 0.0
        able = [point for point in self.shared if point.holds and point.batch > below]
        return min(able, key=lambda point: point.batch, default=None)


def _first(points: Sequence[Point]) -> Point | None:
    return max((point for point in points if point.collapsed), key=lambda point: point.batch, default=None)


def batches(result: Result, workload: str, found: Sequence[Place]) -> Batches:
    """Of the fastest data parallelism on each number of devices, and of one device alone."""
    fastest: dict[tuple[int, int], Place] = {}
    for place in timed(found, "strong"):
        if place.efficiency and strategies.of(place.strategy).family is Family.DATA:
            key = (place.devices, place.nodes)
            fastest[key] = max(fastest.get(key, place), place, key=lambda one: one.rate)
    shared = [Point(p.batch / p.devices, p.efficiency, p.where) for p in fastest.values() if p.efficiency]
    return Batches(*(sorted(points, key=lambda point: -point.batch) for points in (shared, _alone(result, workload))))


def _alone(result: Result, workload: str) -> list[Point]:
    """The rate with fewer samples over the rate with all of them, in the same rounds."""
    whole = step_records.single(result, workload)
    if whole is None:
        return []
    full = float(whole.case["units"] or 1)
    timed_alone, most = result.select("local_time", workload=workload), whole.case["batch_size"]
    return [
        Point(
            float(record.case["batch_size"] or 0),
            ratio_text.scaled(ratio_text.inverse(record.over(whole)), float(record.case["units"] or 0) / full),
            "one device alone",
        )
        for record in timed_alone
        if record.case["batch_size"] != most
    ]
