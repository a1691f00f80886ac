"""Work to time on a simulated clock, and the variants that are timed side by side."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from scalecard.measuring.case_variant import Prepared, Subject, Variant, Work
from scalecard.records.record import Check


class SimulatedMachine:
    """A clock that only work advances, with noise and a slow drift, as a busy machine has them."""

    def __init__(self, noise: float = 0.0, drift: float = 0.0, seed: int = 0) -> None:
        self.now, self.noise, self.drift, self.draw = 0, noise, drift, random.Random(seed)

    def clock(self) -> int:
        return self.now

    def work(self, seconds: float) -> Callable[[], None]:
        def run() -> None:
            factor = 1 + self.draw.gauss(0, self.noise) + self.drift * self.now / 1e9
            self.now += int(seconds * max(0.1, factor) * 1e9)

        return run


def subject(work: Work, **more: Any) -> Subject:
    """Work whose only proof is a stand-in."""
    return Subject(
        work=work, prove=lambda: [Check(name="stand-in", dtype="float64", difference=0, tolerance=0)], **more
    )


def variants(**works: Work) -> list[Variant]:
    """One variant per work, whose case is its name."""
    return [Variant(name=name, case={"name": name}, build=partial(_build, work)) for name, work in works.items()]


def ready(work: Work, **more: Any) -> Prepared:
    """Work as it is when timing begins."""
    (variant,) = variants(work=work)
    return Prepared(variant=variant, subject=subject(work, **more), checks=[], work=[], initial=0)


def _build(work: Work, _at: None) -> Subject:
    return subject(work)
