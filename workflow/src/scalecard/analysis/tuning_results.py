"""What `tuning` measured: the ladder of one workload on one number of devices, rungs alone and on others.

A gain says how many times as many samples or tokens per second a step trains as the plain step of its ladder, which has
no rung but the precision of the workload's recipe.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from scalecard.analysis import formatting
from scalecard.analysis.step_records import rate
from scalecard.records.axes import combination, rungs_of
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Ratio


def is_larger(record: Record) -> bool:
    """Whether its step trains more samples than the plain one."""
    return not record.matches(accumulate=None, batch_factor=None)


@dataclass(frozen=True)
class Ladder:
    """The measured steps of one workload on so many devices, the plain one first."""

    workload: str
    devices: int
    base: Record
    records: tuple[Record, ...]

    @property
    def name(self) -> str:
        """Of the plain step: float32, or bf16."""
        return combination(self.base.case)

    def _further(self, record: Record) -> int:
        """The rungs that it has and the plain step has not."""
        return len(rungs_of(record.case)) - len(rungs_of(self.base.case))

    def gain(self, record: Record) -> Ratio:
        """How many times as fast as the plain step, per sample or token."""
        more = record.integer("units") / self.base.integer("units")
        return formatting.scaled(formatting.speedup(record, self.base), more)

    def find(self, rungs: tuple[str, ...]) -> Record | None:
        """The step with exactly these rungs, at the plain step's batch."""
        usual = (record for record in (self.base, *self.records) if not is_larger(record))
        return next((record for record in usual if rungs_of(record.case) == rungs), None)

    @cached_property
    def alone(self) -> list[Record]:
        """The steps with one further rung, at the plain step's batch."""
        return [r for r in self.records if self._further(r) == 1 and not is_larger(r)]

    @cached_property
    def cumulative(self) -> list[Record]:
        """The first rung that worked, then each on those before it."""
        above = [r for r in self.records if self._further(r) > 1 and not is_larger(r)]
        first = self.find(rungs_of(above[0].case)[: 1 - self._further(above[0])]) if above else None
        return [*([first] if first else self.alone[:1]), *above]

    @cached_property
    def larger(self) -> list[Record]:
        """More batches per update, and larger batches."""
        return [record for record in self.records if is_larger(record)]

    def best(self, among: Callable[[Record], bool] = lambda record: not is_larger(record)) -> Record:
        """The fastest per sample or token; the plain step if none is faster."""
        return max(filter(among, [self.base, *self.records]), key=rate)


def ladders(result: Result) -> Iterator[Ladder]:
    """One of each workload and number of devices whose plain step was measured."""
    by_place: dict[tuple[str, int], list[Record]] = {}
    for record in result.select("step_time"):
        by_place.setdefault((record.text("workload"), record.integer("devices")), []).append(record)
    for (workload, devices), every in by_place.items():
        fewest = min(len(rungs_of(record.case)) for record in every)
        plain = [r for r in every if len(rungs_of(r.case)) == fewest and not is_larger(r)]
        # Where the plain one was not measured, others have one rung each.
        if len(plain) == 1 and rungs_of(plain[0].case) in ((), ("bf16",)):
            yield Ladder(workload, devices, plain[0], tuple(r for r in every if r is not plain[0]))
