"""How much of what is exchanged a step waits for, from what it was seen to wait for on fewer devices.

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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalecard.analysis.forecast.monte_carlo import NUM, Draws, generator

TRIED = 40_000
FEWEST = 60  # draws that must count, or the measured times are taken to be less sure than they say
MOST_WIDENED = 1e6  # how much less sure: what cannot be told then is left as it was thought to be
INACCURACY = 0.006  # of a step: what the formula itself misses
ADDED_ON_CPU = 10  # times as much is added there


@dataclass(frozen=True)
class Seen:
    """One measured step: seconds that it takes, that the slowest rank computes, that the collectives take alone."""

    step: float
    computes: float
    exchanges: float
    sigma: float


@dataclass(frozen=True)
class Overlap:
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
        found: Draws = exposed + self.extra * computes + self.fixed
        return found


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
    return Overlap(*(getattr(tried, part)[chosen] for part in ("slowed", "tail", "room", "extra", "fixed")))


def _weights(tried: Overlap, seen: Sequence[Seen], widening: float) -> Draws:
    """How likely each draw makes what was seen."""
    logs: Draws = np.zeros(TRIED)
    for one in seen:
        computes, exchanges = np.full(TRIED, one.computes), np.full(TRIED, one.exchanges)
        step = one.computes + tried.waits(computes, exchanges)
        logs -= np.square(np.log(step / one.step) / (widening * np.hypot(one.sigma, INACCURACY))) / 2
    likely = np.exp(logs - logs.max())
    weights: Draws = likely / likely.sum()
    return weights
