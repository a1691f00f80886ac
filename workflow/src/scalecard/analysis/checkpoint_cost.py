"""What a checkpoint costs: the seconds that training loses by each way to save it, and how long loading it takes.

While training stands still, they are the time to save; beside training, how much longer the same steps take.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scalecard.analysis import formatting
from scalecard.analysis.step_records import error_of_difference
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Interval, Ratio

HALF_AN_HOUR = 1800.0


@dataclass(frozen=True)
class Cost:
    """Seconds `lost` by one way of saving, with their 95 % interval; `size` in bytes.

    `record` has them, or what is slower by them; `slower` is how many times as long as usual steps take meanwhile, and
    None of what they wait for.
    """

    record: Record
    lost: float
    interval: Interval | None
    size: float
    restore: Record | None = None
    slower: Ratio | None = None

    @property
    def workload(self) -> str:
        return self.record.text("workload")

    @property
    def way(self) -> str:
        return self.record.text("saving")

    @property
    def sure(self) -> bool:
        """Whether it surely costs time."""
        return self.lost > 0 and not (self.interval and self.interval.low <= 0)

    @property
    def at_most(self) -> float:
        """Seconds that it costs with its error."""
        return self.interval.high if self.interval else self.lost

    @property
    def every_half_hour(self) -> float:
        """The share of the time that it costs to save as often as that; at most, unless it surely costs some."""
        lost = max(0.0, self.lost if self.sure else self.at_most)
        return lost / (HALF_AN_HOUR + lost)


def costs(result: Result) -> list[Cost]:
    """Every way of every workload on the most devices: first those for which training stands still."""
    found = []
    for record in formatting.largest(result.select("save_time"), "devices"):
        restore = result.find("restore_time", **record.case)
        found.append(Cost(record, record.median, record.interval, _size(result, record), restore))
    for record in formatting.largest(result.select("steps_time", saving="asynchronous"), "devices"):
        if usual := result.find("steps_time", **{**record.case, "saving": "none"}):
            lost, error = record.median - usual.median, error_of_difference(record, usual)
            bounds = None if error is None else Interval(lost - error, lost + error)
            found.append(Cost(record, lost, bounds, _size(result, record), slower=record.over(usual)))
    return found


def cheapest(found: Sequence[Cost], workload: str) -> Cost | None:
    """The one that loses the least time, with its error."""
    return min((each for each in found if each.workload == workload), key=lambda each: each.at_most, default=None)


def _size(result: Result, record: Record) -> float:
    same = {axis: record.case.get(axis) for axis in ("workload", "devices", "saving")}
    found = result.find("checkpoint_size", **same)
    return found.median if found else 0.0
