"""What a device computes by itself: its step over the batch, and how much the slowest of many ranks takes longer."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scalecard.analysis.forecast.inputs import batch_of
from scalecard.analysis.forecast.monte_carlo import NUM, Draws, generator, of_record
from scalecard.records.record import Record

TAIL = 0.1  # the largest tenth of the ranks' times says how the still larger ones fall off


@dataclass(frozen=True)
class LocalTime:
    """Seconds of one device's step: `times` [NUM, batches] at growing batch `sizes`."""

    sizes: Draws
    times: Draws

    @classmethod
    def of(cls, records: Sequence[Record]) -> "LocalTime":
        """From records of one device, of which a larger batch's is later; ValueError without any."""
        if not records:
            raise ValueError("one device alone was not timed")
        each = {batch_of(record): of_record(record) for record in records}
        return cls(np.array(sorted(each), dtype=float), np.stack([each[size] for size in sorted(each)], axis=1))

    @property
    def known(self) -> bool:
        """Whether other batches than one can be read off it."""
        return len(self.sizes) > 1

    @property
    def least(self) -> int:
        """The smallest batch that was timed."""
        return int(self.sizes[0])

    def at(self, batch: float) -> Draws:
        """Linear between the batches that were timed, and beyond them; never less than nine tenths of the smallest."""
        if not self.known:
            return self.times[:, 0] if batch == self.sizes[0] else np.full(NUM, np.nan)
        right = int(np.clip(np.searchsorted(self.sizes, batch), 1, len(self.sizes) - 1))
        (a, b), (low, high) = self.sizes[right - 1 : right + 1], self.times[:, right - 1 : right + 1].T
        found: Draws = np.maximum(low + (high - low) * (batch - a) / (b - a), 0.9 * self.times[:, 0])
        return found


@dataclass(frozen=True, eq=False)
class Ranks:
    """How many times as long ranks take as the first one, which is the device that was also timed alone.

    `values` [values] are all measured factors, sorted; `below` [ranks, values] is the share of each rank's own steps
    that are no longer than that.
    """

    values: Draws
    below: Draws

    @classmethod
    def of(cls, records: Sequence[Record]) -> "Ranks":
        """From the ranks' own times of one number of devices, the first rank's first; without them, all are alike."""
        if not records:
            return cls(np.ones(1), np.ones((1, 1)))
        first = records[0]
        each = [
            np.concatenate(
                [np.asarray(own) / np.median(of) for own, of in zip(record.samples, first.samples, strict=False)]
            )
            for record in records
        ]
        values = np.sort(np.concatenate(each))
        return cls(values, np.stack([np.searchsorted(np.sort(own), values, side="right") / len(own) for own in each]))

    @property
    def num_ranks(self) -> int:
        return len(self.below)

    @cached_property
    def _others(self) -> Draws:
        """What a further rank may be: in every draw any of those measured, with repetition, as often as there are."""
        chosen = generator("ranks", self.num_ranks).integers(0, self.num_ranks, (NUM, self.num_ranks))
        found: Draws = self.below[chosen].mean(axis=1)
        return found

    @cached_property
    def _found(self) -> dict[int, Draws]:
        return {}

    def slowest(self, ranks: int) -> Draws:
        """The expected largest factor of so many ranks: of those measured, and of draws from them for any further ones.

        Of one rank it is 1: that is the device that was timed alone. A device that is always slow stays so. Once there
        are more ranks than measured values, the largest tenth is continued by the exponential tail that fits it (Coles,
        An Introduction to Statistical Modeling of Extreme Values, 2001, section 4.2, with shape 0): the largest grows
        with the logarithm of the number of ranks.
        """
        if ranks not in self._found:
            self._found[ranks] = self._slowest(ranks) if ranks > 1 else np.ones(NUM)
        return self._found[ranks]

    def _slowest(self, ranks: int) -> Draws:
        measured = self.below[: min(ranks, self.num_ranks)].prod(axis=0)
        further = max(0, ranks - self.num_ranks)
        until = measured * self._others**further
        found = np.diff(until, axis=1, prepend=0.0) @ self.values
        num = len(self.values)
        if further > num > 1:
            start = num - max(2, int(TAIL * num))
            scale = float((self.values[start:] - self.values[start - 1]).mean()) if start > 0 else 0.0
            found = found + scale * np.log(further / num)
        return np.asarray(found)
