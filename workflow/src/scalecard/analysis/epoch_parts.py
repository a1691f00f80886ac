"""What makes up the time of an epoch as the textbook prints it, from epochs that differ in one thing at a time."""

from collections.abc import Iterator
from dataclasses import dataclass

from scalecard.records.record import Record, Result
from scalecard.records.statistics import Interval, Ratio


@dataclass(frozen=True, kw_only=True)
class EpochParts:
    """An epoch as printed, one on resident images but as often synchronised, and ours, on as many devices.

    They were timed in turn, so that shares of the first are of the same turns.
    """

    printed: Record
    synchronised: Record
    resident: Record

    @property
    def devices(self) -> int:
        return self.printed.integer("devices")

    @property
    def loading(self) -> Ratio:
        """The share that goes when the images are resident: what of loading them the training does not hide."""
        left = self.synchronised.over(self.printed)
        bounds = left.interval and Interval(1 - left.interval.high, 1 - left.interval.low)
        return Ratio(1 - left.value, bounds)

    @property
    def training(self) -> Ratio:
        """The share that ours takes."""
        return self.resident.over(self.printed)

    @property
    def synchronising(self) -> float:
        """The share that goes when no batch is waited for; below zero if that cannot be seen."""
        return 1 - self.loading.value - self.training.value


def epoch_parts(result: Result) -> Iterator[EpochParts]:
    """For each number of devices on which all three were measured, the fewest first."""
    for record in sorted(result.select("epoch_time", way="as printed"), key=lambda each: each.integer("devices")):
        synchronised, resident = (
            result.find("epoch_time", devices=record.case["devices"], way=way) for way in ("synchronised", "resident")
        )
        if synchronised and resident:
            yield EpochParts(printed=record, synchronised=synchronised, resident=resident)
