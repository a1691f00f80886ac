"""What a collective takes on any number of devices: latency and bytes over rate, each fitted and continued.

    t(n, S) = latency(n) + passes (n - 1)/n S / rate(n)

with two passes of the ring for an all-reduce and one for its halves, an all-gather and a reduce-scatter. The fit is of
relative errors, robust, for each measured n by itself. Then the latency is continued between the growth of a tree
(log2 n) and that of a ring (n - 1), and the rate along its trend, which is little: bus bandwidth hardly depends on n.
What the two-parameter curve misses at a size (NCCL changes its algorithm) is kept as a factor of that size.

Source: Hockney, The communication challenge for MPP (1994), and nccl-tests' bus bandwidth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scalecard.analysis import by_key
from scalecard.analysis.forecast.fitted_terms import NUM, Draws, generator, line, log_normal, of_record, on_line
from scalecard.records.record import Record

TREND = (0.0, 0.05)  # of the logarithm of a rate per doubling of n: mean and standard deviation before seeing any
OUTLIER = 0.1  # a relative residual from which on a size counts for less
USED = (0.75, 0.95)  # the share of a network's line rate that reaches the ring


@dataclass(frozen=True, order=True)
class Layout:
    """So many devices in all, on so many nodes."""

    devices: int
    nodes: int = 1


def layout_of(record: Record) -> Layout:
    return Layout(record.integer("devices"), record.integer("nodes", 1))


@dataclass(frozen=True)
class Network:
    """Between nodes, if it was not measured: the rate of a whole node each way, and what one message takes."""

    gbit_per_s: float
    latency_us: float


@dataclass(frozen=True, eq=False)
class Fitted:
    """A collective on one number of devices: draws of its latency in s and rate in B/s, and what they miss by size."""

    latency: Draws
    rate: Draws
    sizes: Draws
    missed: Draws

    @classmethod
    def of(cls, records: Sequence[Record], passes: int) -> "Fitted":
        """Robust least squares of relative errors, reweighted ten times; neither part is negative."""
        drawn = by_key((float(record.integer("bytes")), of_record(record)) for record in records)
        sizes = np.array(sorted(drawn))
        # A size may have been timed by two experiments.
        times = np.stack([np.exp(np.mean(np.log(drawn[size]), axis=0)) for size in sizes], axis=1)
        devices = layout_of(records[0]).devices
        wire = passes * (devices - 1) / devices * sizes
        weights = np.ones_like(times)
        for _ in range(10):
            latency, slowness = _least_squares(wire, times, weights)
            residuals = (latency[:, None] + slowness[:, None] * wire) / times - 1
            weights = 1 / (1 + np.square(residuals / OUTLIER))
        fitted = latency[:, None] + slowness[:, None] * wire
        return cls(latency, 1 / slowness, np.log(sizes), np.log(times / fitted))

    def factor(self, size: float) -> Draws:
        """Measured over fitted at a size, between those that were measured."""
        at = float(np.clip(np.log(size), self.sizes[0], self.sizes[-1]))
        missed = on_line(at, self.sizes, self.missed) if len(self.sizes) > 1 else self.missed[:, 0]
        return np.asarray(np.exp(missed))


def _least_squares(wire: Draws, times: Draws, weights: Draws) -> tuple[Draws, Draws]:
    """Of every draw the (latency, seconds per byte) with the smallest weighted relative errors."""
    a, b = 1 / times, wire / times
    aa, ab, bb = ((weights * p).sum(axis=1) for p in (a * a, a * b, b * b))
    ra, rb = ((weights * p).sum(axis=1) for p in (a, b))
    determinant = np.maximum(aa * bb - ab * ab, 1e-300)
    latency, slowness = (bb * ra - ab * rb) / determinant, (aa * rb - ab * ra) / determinant
    alone = (latency <= 0) | (len(wire) == 1)
    return np.where(alone, 0.0, latency), np.where(alone | (slowness <= 0), rb / bb, slowness)


@dataclass(frozen=True, eq=False)
class Exchange:
    """One collective: its fits by devices of a node and, if they were measured, by nodes of `per_node` devices each."""

    passes: int
    within: Mapping[int, Fitted]
    over: Mapping[int, Fitted]
    per_node: int
    network: Network

    @property
    def known(self) -> bool:
        """Whether enough was measured: within a node, or between nodes that have one device each."""
        return bool(self.within or (self.over and self.per_node == 1))

    def seconds(self, size: float, layout: Layout) -> Draws:
        """Draws of its time with `size` bytes, on a number of devices that need not have been measured."""
        n = layout.devices
        if n == 1 or not self.known:
            return np.zeros(NUM)
        wire = self.passes * (n - 1) / n * size
        nodes = -(-n // self.per_node)
        if nodes > 1 and self.over:
            return self._over_nodes(wire, size, nodes)
        here, factor = min(n, self.per_node), self.within[max(self.within)].factor(size)
        latency, rate = _continued(self.within, here, self.passes, "within"), _rates(self.within, here, "within")
        if nodes == 1:
            return (latency + wire / rate) * factor
        latency_between, line_rate = self._assumed(nodes)
        return latency + latency_between + wire / np.minimum(rate, line_rate) * np.maximum(factor, 1)

    def between_nodes(self, size: float, nodes: int) -> Draws:
        """Draws of its time if every device of a node has a share of `size` bytes, and all of them exchange at once.

        Each exchanges with its peers on the other nodes. Together they send over a node's network what one ring over
        all devices sends that has as many bytes, but for the parts that nodes keep.
        """
        if nodes == 1 or not self.known:
            return np.zeros(NUM)
        wire = self.passes * (nodes - 1) / nodes * size
        if self.over:
            return self._over_nodes(wire, size, nodes)
        latency, rate = self._assumed(nodes)
        return latency + wire / rate

    def _over_nodes(self, wire: float, size: float, nodes: int) -> Draws:
        latency, rate = _continued(self.over, nodes, self.passes, "over"), _rates(self.over, nodes, "over")
        return (latency + wire / rate) * self.over[max(self.over)].factor(size)

    def _assumed(self, nodes: int) -> tuple[Draws, Draws]:
        """Latency in s and rate in B/s of the network between nodes of which none was measured."""
        draw = generator("network", self.network)
        rate = self.network.gbit_per_s / 8 * 1e9 * draw.uniform(*USED, NUM)
        return _grown(draw.uniform(0, 0.5, NUM), nodes, self.passes) * self.network.latency_us * 1e-6, rate


def _grown(towards_ring: Draws, count: int, passes: int) -> Draws:
    """Steps that follow one another, between a tree's (`towards_ring` 0) and a ring's (1)."""
    tree, ring = passes * np.log2(max(2, count)), passes * (count - 1.0)
    return np.asarray(tree * (max(ring, 1e-9) / tree) ** towards_ring if count > 2 else np.full(NUM, ring))


def _continued(fits: Mapping[int, Fitted], count: int, passes: int, name: str) -> Draws:
    """The latency on `count` devices or nodes: as measured, or continued from the two largest counts, or from one."""
    if count in fits:
        return fits[count].latency
    towards_ring = generator("latency", name).uniform(0, 0.7, NUM)
    ordered = sorted(fits)
    steps = {each: _grown(towards_ring, each, passes) for each in (*ordered, count)}
    last = ordered[-1]
    if len(ordered) == 1:
        share = generator("start", name).uniform(0.2, 1, NUM)  # of the latency that grows; the rest is starting
        return fits[last].latency * (1 - share + share * steps[count] / steps[last])
    before = ordered[-2]
    slope = (fits[last].latency - fits[before].latency) / (steps[last] - steps[before])
    found: Draws = fits[last].latency + np.maximum(slope, 0) * (steps[count] - steps[last])
    return np.maximum(found, 0.5 * fits[last].latency)


def _rates(fits: Mapping[int, Fitted], count: int, name: str) -> Draws:
    """The rate on `count` devices or nodes: as measured, or along the trend of those measured."""
    if count in fits:
        return fits[count].rate
    ordered = sorted(fits)
    x = np.log2(np.array(ordered, dtype=float) / ordered[-1])
    logs = np.log(np.stack([fits[each].rate for each in ordered], axis=1))
    level = float(np.median(logs[:, -1]))
    trend = line(x, np.median(logs, axis=0) - level, np.full(len(x), 0.03), ((0.0, 0.1), TREND), "rate", name)
    found: Draws = fits[ordered[-1]].rate * np.exp(trend[:, 1] * np.log2(count / ordered[-1]))
    return found * log_normal(1.0, 0.01, "rate", name, count)
