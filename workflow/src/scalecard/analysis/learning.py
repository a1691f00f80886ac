"""Whether several devices learn what one does: their test accuracies at the end beside one's, its error, and chance.

The error is that of the test images alone: half the 95 % interval of the difference of two shares of n images,

    2 sqrt((a (1 - a) + b (1 - b)) / n).

Runs also differ in the order of their images and in their roundings, so a difference beyond it is no fault by itself.
Training is lost if several devices keep less than half of what one learned beyond chance.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scalecard.analysis import by_key
from scalecard.records.record import Record, Result

TEST_IMAGES = 10_000  # of Fashion-MNIST
CHANCE = 0.1  # it has ten classes, and so have the images that are made up in its place
KEPT = 0.5  # at least, of what one device learns


@dataclass(frozen=True)
class Learning:
    """The curves of the same training on one device and on the most: a test accuracy after each epoch."""

    one: Record
    most: Record
    images: int

    @property
    def error(self) -> float:
        """Of the difference of both accuracies."""
        return error_of(final(self.one), final(self.most), self.images)

    @property
    def is_chance(self) -> bool:
        """Whether one device did not surely learn anything: then no accuracy says anything."""
        return final(self.one) - CHANCE <= error_of(final(self.one), CHANCE, self.images)

    @property
    def is_lost(self) -> bool:
        """Whether the most devices did not learn what one did; NaN is no accuracy."""
        return not self.is_chance and not final(self.most) - CHANCE >= KEPT * (final(self.one) - CHANCE)


def final(record: Record) -> float:
    """The last value of a curve over epochs; the median of the processes' last values."""
    return statistics.median(samples[-1] for samples in record.samples)


def error_of(one: float, other: float, images: int) -> float:
    """Half the 95 % interval of the difference of two test accuracies, each of so many images."""
    return 2 * math.sqrt((one * (1 - one) + other * (1 - other)) / images)


def compare_learning(result: Result, curves: Sequence[Record]) -> Iterator[Learning]:
    """One of each workload, of curves that differ in the number of devices alone, if one device has its own."""
    images = result.spec.get("test_images") or TEST_IMAGES
    for own in by_key((record.case.get("workload"), record) for record in curves).values():
        one, *others = sorted(own, key=lambda record: record.integer("devices"))
        if others and one.integer("devices") == 1:
            yield Learning(one, others[-1], images)
