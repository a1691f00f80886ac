"""What makes the textbook's second run of ResNet-18 less accurate than its first: its changes, one after the other."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise

from scalecard.analysis import formatting
from scalecard.records.axes import PRINTED, Case, rate_for
from scalecard.records.record import Record, Result


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
        return formatting.final(self.after) - formatting.final(self.before)

    @property
    def error(self) -> float:
        """What chance may move it by: of which images are tested, and what either run falls by between two epochs."""
        ends = formatting.final(self.before), formatting.final(self.after)
        chance = formatting.accuracy_error(*ends, self.images)
        return max(
            chance, *(fall for record in (self.before, self.after) for fall in map(_largest_fall, record.samples))
        )

    @property
    def explains_a_drop(self) -> bool:
        return self.moved < -self.error


def _largest_fall(curve: list[float]) -> float:
    """Between an epoch and any later one; what a run still learns is none."""
    return max(high - low for place, high in enumerate(curve) for low in curve[place:])


def textbook_runs(result: Result) -> list[Record]:
    """Accuracies of the first run, and of all that change one thing more, until the second; without what is missing."""
    small, large = _ends(result)
    cases: list[Case] = [{"start": "not lazy", **small}, {"start": "all", **small}, {"start": "second run", **small}]
    cases.append({"start": "second run", **large})
    return [found for case in cases if (found := result.find("accuracy", workload=PRINTED, **case))]


def _ends(result: Result) -> tuple[Case, Case]:
    """The textbook's pair of batch sizes and learning rates."""
    batches, lrs = result.spec["batch_sizes"], result.spec["lrs"]
    small, large = ({"batch_size": batches[place], "lr": lrs[place]} for place in (0, -1))
    return small, large


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
    for record in sorted(result.select("epoch_time", start=None), key=lambda each: each.integer("devices")):
        count = record.integer("devices")
        accuracy = result.find("accuracy", start=None, **record.case)
        if accuracy and record.matches(batch_size=batch * count, lr=rate_for(lr, count)):
            found.append((record, accuracy))
    return found
