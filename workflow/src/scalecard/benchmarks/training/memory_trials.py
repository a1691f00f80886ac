"""What was seen to fit into the devices' memory, what fits side by side, its times, and the largest batch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from scalecard.benchmarks.training.dry_run import Trial, Trials
from scalecard.benchmarks.training.reference_cache import References, Setting
from scalecard.benchmarks.training.strategy import StrategyBuilder
from scalecard.hardware.gpu_memory import empty_cache
from scalecard.measuring.case_variant import Variant
from scalecard.measuring.interleaved_timing import time_rounds
from scalecard.measuring.stopping_rule import Rule
from scalecard.measuring.timing import Timing
from scalecard.records.record import Case, Record

GRAIN = 16  # the largest batch is right to one part in so many
AS_TIMED = "compared with the plain loop as it is timed alone: the memory is too small for float64"


@dataclass(frozen=True)
class Fitting:
    """A variant that can be timed, and what it was seen to need: as timed, and for its proof."""

    strategy: StrategyBuilder
    variant: Variant
    trial: Trial
    proof: Trial
    notes: tuple[str, ...] = ()

    def record(self, timing: Timing) -> Record:
        """Its times, with its notes."""
        record = timing.record(self.strategy.metric)
        return replace(record, note="; ".join(self.notes)) if record.status == "ok" else record


Also = Callable[[Sequence[Fitting], Sequence[Timing]], Iterable[Record]]


def tried(
    strategy: StrategyBuilder,
    at: Setting,
    small: Setting,
    *,
    trials: Trials,
    references: References,
    name: str,
    case: Case,
) -> Fitting | Trial:
    """What can be timed at a setting, and is proven at a small one as well; or else the trial that says why not."""
    trial = trials.of(strategy, at)
    exact = not (at.workload.inexact or strategy.is_part)
    proof = trials.of(strategy, small) if exact and trials.gpus and not trial.refused else Trial()
    if trial.refused or (proof.refused and not proof.out_of_memory):
        return trial if trial.refused else proof
    variant = Variant(
        name=name,
        case=case,
        build=partial(strategy.build, references),
        proven_at=[small] if exact and not proof.out_of_memory else [],  # the step that is timed is always proven
        timed_at=at,
        metered=not strategy.is_part,
    )
    return Fitting(strategy, variant, trial, proof, (AS_TIMED,) if proof.out_of_memory else ())


def _nothing(_together: Sequence[Fitting], _timings: Sequence[Timing]) -> Iterable[Record]:
    return ()


def timed(fitting: Sequence[Fitting], trials: Trials, rule: Rule, also: Also = _nothing) -> Iterator[Record]:
    """The times of all, with what `also` finds in those of one group; on GPUs then what memory each strategy needs."""
    for together in side_by_side(fitting, trials.free()):
        variants = [one.variant for one in together]
        timings = time_rounds(variants, devices=trials.devices, rule=rule, ranks=trials.ctx, energy=True)
        records = [one.record(timing) for one, timing in zip(together, timings, strict=True)]
        records += also(together, timings)
        del timings  # with what was timed
        empty_cache()
        yield from records
    for one in (one for one in fitting if trials.gpus and not one.strategy.is_part):
        yield Record(case=one.variant.case, metric="peak_memory", unit="B", samples=[[one.trial.peak]])


def side_by_side(fitting: Sequence[Fitting], memory: float) -> Iterator[list[Fitting]]:
    """Those that the GPUs hold at the same time, in as few groups as their order allows."""
    group = list[Fitting]()
    for one in fitting:
        if group and _needed([*group, one]) > memory:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _needed(group: Sequence[Fitting]) -> float:
    """Everything that is resident, and the most that any of them takes beside it, timed or proven."""
    return sum(one.trial.resident for one in group) + max(max(_beside(one), one.proof.peak) for one in group)


def _beside(one: Fitting) -> float:
    return one.trial.peak - one.trial.resident


def largest_batch(
    peak: Callable[[int], float | None],
    start: int,
    known: float,
    *,
    slope: float,
    memory: float,
    most: int,
    multiple: int = 1,
) -> int:
    """The largest batch that was seen to fit, up to `most`: `start`, or a multiple of `multiple`.

    peak(batch) tries one and returns the bytes that it needed; None if they were too many. `start` fits, in `known`
    bytes, and each further sample takes at most `slope` bytes. The next one that is tried is at most twice the largest
    that fitted, halfway to the smallest that did not, and never beyond where the line through the last two peaks meets
    `memory`: if only one rank ran out of memory, the others would wait for it in vain.
    """
    fits, above = start, most + 1
    while True:
        reach = fits + int((memory - known) / slope) if slope > 0 else above - 1
        middle = 2 * fits if above > most else (fits + above) // 2
        batch = min(reach, middle, above - 1) // multiple * multiple
        if batch - fits < max(1, fits // GRAIN):
            return fits
        found = peak(batch)
        if found is None or found > memory:
            above = batch
        else:
            slope, fits, known = (found - known) / (batch - fits), batch, found
