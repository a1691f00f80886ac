"""Epochs of the textbook's data parallelism: what makes up their time as it prints it, and their accuracy.

The parts of the time are told by epochs that differ in one thing at a time. So are the causes that make its second run
of ResNet-18 less accurate than its first: its changes, one after the other.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise

from scalecard.analysis import learning
from scalecard.records.axes import PRINTED, Way, rate_for
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Interval, Ratio

# The ways that textbooks print, each with what is left without its loader.
WITHOUT_LOADER: dict[str, Way] = {"as printed": "synchronised", "loaded": "resident"}


@dataclass(frozen=True, kw_only=True)
class EpochParts:
    """An epoch as printed, one on resident images but as often synchronised, and ours, on as many devices.

    They were timed in turn, so that shares of the first are of the same turns. Of a textbook that does not synchronise
    the latter two are one.
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
    printed = [record for way in WITHOUT_LOADER for record in result.select("epoch_time", way=way)]
    for record in sorted(printed, key=lambda each: each.integer("devices")):
        synchronised, resident = (
            result.find("epoch_time", devices=record.case["devices"], way=way)
            for way in (WITHOUT_LOADER[record.text("way")], "resident")
        )
        if synchronised and resident:
            yield EpochParts(printed=record, synchronised=synchronised, resident=resident)


class Cause(Enum):
    """What differs between two runs."""

    LAZY_LAYERS = auto()  # are initialised as all others
    SECOND_RUN = auto()  # on the net of the first, whose weights alone are drawn anew
    BATCH_AND_RATE = auto()  # both are doubled
    ALL = auto()  # that is before
    BLOCKS = auto()  # are the textbook's instead of torchvision's


@dataclass(frozen=True, kw_only=True)
class Step:
    """Accuracies before and after one change, of so many test images."""

    cause: Cause
    before: Record
    after: Record
    images: int

    @property
    def moved(self) -> float:
        """By how much the last epoch's accuracy is larger."""
        return learning.final(self.after) - learning.final(self.before)

    @property
    def error(self) -> float:
        """What chance may move it by: of which images are tested, and what either run falls by between two epochs."""
        ends = learning.final(self.before), learning.final(self.after)
        curves = [*self.before.samples, *self.after.samples]
        return max(learning.error_of(*ends, self.images), *map(_largest_fall, curves))

    @property
    def explains_a_drop(self) -> bool:
        return self.moved < -self.error


def _largest_fall(curve: list[float]) -> float:
    """Between an epoch and any later one; what a run still learns is none."""
    return max(high - low for place, high in enumerate(curve) for low in curve[place:])


def textbook_runs(result: Result) -> list[Record]:
    """Accuracies of the first run, and of all that change one thing more, until the second; without what is missing."""
    cases = []
    for start, place in (("not lazy", 0), ("all", 0), ("second run", 0), ("second run", -1)):
        batch, lr = result.spec["batch_sizes"][place], result.spec["lrs"][place]
        cases.append({"workload": PRINTED, "start": start, "batch_size": batch, "lr": lr})
    return [found for case in cases if (found := result.find("accuracy", **case))]


def causes(result: Result) -> Iterator[Step]:
    """What each change moves, in the order in which the textbook makes them, and all; what it does not change, last."""
    runs, images = textbook_runs(result), result.spec["test_images"] or 10_000
    if len(runs) == 4:
        changes = [*pairwise(runs), (runs[0], runs[-1])]
        for cause, (before, after) in zip(Cause, changes, strict=False):
            yield Step(cause=cause, before=before, after=after, images=images)
        others = result.find("accuracy", workload=result.spec["model"], start="all")
        if others:
            yield Step(cause=Cause.BLOCKS, before=others, after=runs[1], images=images)


def growing_with_devices(result: Result) -> list[tuple[Record, Record]]:
    """Times and accuracies where batch and learning rate are as many times the first ones as there are devices."""
    batch, lr = result.spec["batch_sizes"][0], result.spec["lrs"][0]
    found = []
    for record in sorted(result.select("epoch_time", start=None, way=None), key=lambda each: each.integer("devices")):
        count = record.integer("devices")
        accuracy = result.find("accuracy", start=None, **record.case)
        if accuracy and record.matches(batch_size=batch * count, lr=rate_for(lr, count)):
            found.append((record, accuracy))
    return found
