"""The parts of a step that all forecasts of a workload share, each fitted once: devices alone, ranks, and exchanges.

How much of what is exchanged a step waits for, from what it was seen to wait for on fewer devices.

    waits = max(tail t', t' - room C) + extra C + fixed,    t' = slowed t

t       what the collectives take alone, C what the slowest rank computes
slowed  how many times as long they take beside computing
tail    the share of them that nothing is left to hide behind: the last bucket, the first parameters
room    the share of computing that can hide them, of which much is the backward
extra   what else the strategy adds, in proportion to computing or fixed: hooks, copies, kernels that are slowed down

The five are not known; they are weighed by how well they tell what was measured on fewer devices. Where little was
measured many are left, and the band is as wide as that. CPU ranks exchange with the cores that they compute with, so
little can be hidden, and a strategy adds more. Source of the weighing: Rubin, The calculation of posterior
distributions by data augmentation (1987), importance resampling.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from scalecard.analysis.forecast.inputs import Layout, Workload, batch_of, layout_of
from scalecard.analysis.forecast.monte_carlo import NUM, Draws, generator, line, middle, of_record, spread
from scalecard.analysis.forecast.network import Fitted
from scalecard.analysis.step_records import counted
from scalecard.records.record import Record
from scalecard.records.strategies import DDP, Collective

SCALINGS = ("strong", "weak")
# Before seeing any: level, slope per doubling, and the power of ranks per core: 1 if nothing else uses the cores.
COMPANY = ((0.0, 0.05), (0.0, 0.008), (0.8, 0.4))
TAIL = 0.1  # the largest tenth of the ranks' times says how the still larger ones fall off
TRIED = 40_000
FEWEST = 60  # draws that must count, or the measured times are taken to be less sure than they say
MOST_WIDENED = 1e6  # how much less sure: what cannot be told then is left as it was thought to be
INACCURACY = 0.006  # of a step: what the formula itself misses
ADDED_ON_CPU = 10  # times as much is added there


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
        return int(self.sizes[0])

    def at(self, batch: float) -> Draws:
        """Linear between the batches that were timed, and beyond them; never less than nine tenths of the smallest."""
        if not self.known:
            return self.times[:, 0] if batch == self.sizes[0] else np.full(NUM, np.nan)
        right = int(np.clip(np.searchsorted(self.sizes, batch), 1, len(self.sizes) - 1))
        (a, b), (low, high) = self.sizes[right - 1 : right + 1], self.times[:, right - 1 : right + 1].T
        return np.asarray(np.maximum(low + (high - low) * (batch - a) / (b - a), 0.9 * self.times[:, 0]))


@dataclass(frozen=True, eq=False)
class Ranks:
    """How many times as long ranks take as the first one, which is the device that was also timed alone.

    `values` [values] are all measured factors, sorted; `below` [ranks, values] is the share of each rank's own steps
    that are no longer than that.
    """

    values: Draws
    below: Draws
    _found: dict[int, Draws] = field(default_factory=dict, init=False)

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

    @cached_property
    def _others(self) -> Draws:
        """What a further rank may be: in every draw any of those measured, with repetition, as often as there are."""
        count = len(self.below)
        chosen = generator("ranks", count).integers(0, count, (NUM, count))
        return np.asarray(self.below[chosen].mean(axis=1))

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
        measured = self.below[:ranks].prod(axis=0)
        further = max(0, ranks - len(self.below))
        until = measured * self._others**further
        found = np.diff(until, axis=1, prepend=0.0) @ self.values
        num = len(self.values)
        if further > num > 1:
            start = num - max(2, int(TAIL * num))
            scale = float((self.values[start:] - self.values[start - 1]).mean()) if start > 0 else 0.0
            found = found + scale * np.log(further / num)
        return np.asarray(found)


@dataclass(frozen=True, eq=False)
class Parts:
    """Of one workload; `per_node` devices are on a node, and ranks on a CPU share its `cores`."""

    workload: Workload
    per_node: int
    cores: int | None = None

    @property
    def on_cpu(self) -> bool:
        """Whether CPU ranks and workers stand in for devices."""
        return self.cores is not None

    @cached_property
    def local(self) -> LocalTime:
        """One device by itself; ValueError if it was not timed."""
        single, found = self.workload.single, self.workload.local
        if single is not None and batch_of(single) not in map(batch_of, found):
            found.append(single)
        return LocalTime.of(found)

    @cached_property
    def batch(self) -> int:
        assert self.workload.single is not None
        return batch_of(self.workload.single)

    @cached_property
    def ranks(self) -> dict[str, Ranks]:
        """By scaling, from DDP's ranks without synchronising, on the most devices that may be used."""
        made = {}
        for scaling in SCALINGS:
            found = self.workload.parts(self.workload.steps(DDP, scaling))
            made[scaling] = Ranks.of(self.workload.others("rank_time", found[max(found)]) if found else [])
        return made

    @cached_property
    def company(self) -> Draws:
        """Of the logarithm of what a rank takes longer in company: level, slope per doubling, crowding; [NUM, 3]."""
        seen = [one for scaling in SCALINGS for one in self._seen_in_company(scaling)]
        devices, ratios, sigma = np.array(seen).reshape(-1, 3).T
        x = np.array([self._company_of(int(count)) for count in devices]).reshape(-1, 2)
        return line(x, np.log(ratios), sigma, COMPANY, "company", self.workload.name)

    def _seen_in_company(self, scaling: str) -> list[tuple[int, float, float]]:
        """(devices, ratio, its relative error) of the steps that may be used."""
        found = list[tuple[int, float, float]]()
        for layout, step in self.workload.parts(self.workload.steps(DDP, scaling)).items():
            for own in self.workload.others("unsynchronised_time", step):
                alone = self.local.at(batch_of(step) / layout.devices) * self.ranks[scaling].slowest(layout.devices)
                ratio = own.median / middle(alone)
                if not np.isnan(ratio):  # no smaller batch was timed alone
                    sigma = float(np.hypot(spread(own), np.std(np.log(alone)))) + 0.002
                    found.append((layout.devices, ratio, sigma))
        return found

    def _company_of(self, devices: int) -> tuple[float, float]:
        """(doublings from two devices on, within a node: other nodes are no company; log of ranks per core)."""
        crowd = max(1.0, devices / self.cores) if self.cores else 1.0
        return max(0.0, float(np.log2(min(devices, self.per_node) / 2))), float(np.log(crowd))

    def in_company(self, devices: int) -> Draws:
        """How many times as long a rank takes as the device alone."""
        if devices == 1:
            return np.ones(NUM)
        return np.asarray(np.exp(self.company @ (1.0, *self._company_of(devices))))

    def crowded(self, devices: int) -> Draws:
        """The part of it that is due to more ranks than cores."""
        return np.asarray(np.exp(self.company[:, 2] * self._company_of(devices)[1]))

    @cached_property
    def fits(self) -> Mapping[Collective, Mapping[bool, Mapping[int, Fitted]]]:
        """By collective and whether over nodes: by the number of devices, or of nodes."""
        return {name: {over: self._fits(name, over) for over in (False, True)} for name in Collective}

    def _fits(self, name: Collective, over: bool) -> dict[int, Fitted]:
        by_layout: dict[Layout, list[Record]] = {}
        for record in sorted(self.workload.exchanges(name, over_nodes=over), key=layout_of):
            by_layout.setdefault(layout_of(record), []).append(record)
        return {at.nodes if over else at.devices: Fitted.of(own, name.passes) for at, own in by_layout.items()}

    @cached_property
    def volume(self) -> tuple[float, float]:
        """Bytes of all gradients, as they were counted (0: they were not), and how many all-reduces send them.

        Of a step the bytes alone are counted, of the exchange by itself both.
        """
        select, name = self.workload.strategies.select, self.workload.name
        for record in (*select("exchange_time", workload=name), *select("step_time", workload=name)):
            size, calls = counted(record, "all-reduced bytes"), counted(record, "all-reduces")
            if size:
                return size, calls or 1.0
        return 0.0, 1.0


@dataclass(frozen=True)
class Seen:
    """One measured step: seconds that it takes, that the slowest rank computes, that the collectives take alone."""

    step: float
    computes: float
    exchanges: float
    sigma: float


class Overlap(NamedTuple):
    """Draws of what the formula needs."""

    slowed: Draws
    tail: Draws
    room: Draws
    extra: Draws
    fixed: Draws

    def waits(self, computes: Draws, exchanges: Draws) -> Draws:
        """Seconds that a step takes beyond computing."""
        beside = self.slowed * exchanges
        exposed = np.maximum(self.tail * beside, beside - self.room * computes)
        return np.asarray(exposed + self.extra * computes + self.fixed)


def overlap(seen: Sequence[Seen], *, extra: float, name: str, on_cpu: bool = False) -> Overlap:
    """What remains likely after these; `extra` is how much a strategy may be thought to add, before seeing it."""
    draw = generator("overlap", name)
    smallest = min((one.computes for one in seen), default=0.0)
    extra *= ADDED_ON_CPU if on_cpu else 1
    tried = Overlap(
        slowed=np.exp(0.2 + 0.2 * draw.standard_normal(TRIED)),
        tail=draw.uniform(0.5, 1, TRIED) ** 0.5 if on_cpu else draw.uniform(0, 1, TRIED) ** 2,
        room=draw.uniform(0, 0.2 if on_cpu else 0.9, TRIED),
        extra=np.abs(extra * draw.standard_normal(TRIED)),
        fixed=np.abs(extra * smallest * draw.standard_normal(TRIED)),
    )
    weights, widening = np.full(TRIED, 1 / TRIED), 1.0
    while seen and widening < MOST_WIDENED:
        weights = _weights(tried, seen, widening)
        if 1 / np.square(weights).sum() >= FEWEST:
            break
        widening *= 1.5
    chosen = draw.choice(TRIED, NUM, p=weights)
    return Overlap(*(part[chosen] for part in tried))


def _weights(tried: Overlap, seen: Sequence[Seen], widening: float) -> Draws:
    logs: Draws = np.zeros(TRIED)
    for one in seen:
        computes, exchanges = np.full(TRIED, one.computes), np.full(TRIED, one.exchanges)
        step = one.computes + tried.waits(computes, exchanges)
        logs -= np.square(np.log(step / one.step) / (widening * np.hypot(one.sigma, INACCURACY))) / 2
    likely = np.exp(logs - logs.max())
    return np.asarray(likely / likely.sum())
