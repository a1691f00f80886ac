"""Dry runs: what a strategy needs of the memory, what fits side by side, and the largest batch; then their times."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

import torch

from scalecard.benchmarks.training.strategy import BEYOND_ROUNDING, CannotBe, References, Setting, StrategyBuilder
from scalecard.distributed.context import RankContext
from scalecard.hardware.devices import Device
from scalecard.hardware.failures import empty_cache, first_line, in_one_line, reason_of
from scalecard.hardware.host import is_out_of_memory
from scalecard.measuring.case_variant import Subject, Timing, Variant
from scalecard.measuring.interleaved_timing import time_rounds
from scalecard.measuring.memory import MemoryByKind
from scalecard.measuring.stopping_rule import Rule
from scalecard.measuring.timer import Bench, Synchronised
from scalecard.records.axes import Case, MemoryKind
from scalecard.records.record import Reason, Record
from scalecard.records.strategies import DATA_PARALLEL, Division, Family
from scalecard.time_spent import Activity, spent_on

GRAIN = 16  # the largest batch is right to one part in so many
LEAP = 8  # from a batch to the next one that is tried, once two peaks give a line
AS_TIMED = "compared with the plain loop as it is timed alone: the memory is too small for float64"
NO_MEAN = (
    "its loss is no mean over samples: averaged over what is forwarded at once, a first step differs from the whole"
    " batch's by {:.0%} of its length; docs/own-model.md has a loss that does not depend on it"
)
USABLE = 0.95  # of a GPU's memory; NCCL and cuBLAS take some of it later


@dataclass(frozen=True)
class Trial:
    """Why a strategy cannot be used or, in bytes of the fullest GPU of any rank, what it needs; 0 without GPUs.

    `resident` stays between steps, `peak` is the most within one, with all that is resident. The `first` step took so
    many seconds on the slowest rank: in it everything is compiled. `by_kind`: what the GPU with the highest peak needs
    it for, if that was looked at, and `place` its number among all that take part.
    """

    resident: float = 0
    peak: float = 0
    refused: str = ""
    out_of_memory: bool = False
    first: float = field(default=0, compare=False)
    by_kind: Mapping[MemoryKind, float] = field(default_factory=dict, compare=False)
    place: int = field(default=0, compare=False)

    def record(self, case: Case, metric: str) -> Record:
        """Of a strategy that cannot be used: failed if the memory is too small, skipped otherwise."""
        if self.out_of_memory:
            return Record.failed(case, self.refused, reason=Reason.OUT_OF_MEMORY, metric=metric)
        return Record.skipped(case, self.refused, metric=metric)


@dataclass(frozen=True)
class Trials:
    """The ranks and devices that try together; all ranks take part and agree. What is tried is not counted.

    With `by_kind` it is also looked at what the memory is needed for.
    """

    ctx: RankContext
    devices: Sequence[Synchronised]
    references: References
    by_kind: bool = False

    def of(self, strategy: StrategyBuilder, at: Setting) -> Trial:
        """Two steps at a setting; without GPUs one."""
        references = type(self.references)(self.references.device, self.references.steps, counting=False)
        failure: Exception | None = None
        try:
            each_has_a_share = strategy.kind.family is Family.DATA
            shares, of = (at.devices, "devices") if each_has_a_share else (strategy.replicas, "replicas")
            if at.workload.batch_size % shares:
                raise CannotBe(f"{shares} {of} cannot share {at.workload.batch_size} samples equally")
            refuse_unequal_batches(strategy, at)
            strategy.suits(at)
            mine = self._needs(partial(strategy.build, references, at), strategy.pipelined)
        except Exception as error:  # whatever a library says of a model that it was not made for
            if reason_of(error) is Reason.DEVICE_FAULT:
                raise
            # Errors of ours explain themselves, and too little memory is the reason that the record has.
            too_large = is_out_of_memory(error)
            said = first_line(error) if too_large or isinstance(error, CannotBe) else in_one_line(error)
            mine, failure = Trial(refused=said, out_of_memory=too_large), error
            self._clear()
        empty_cache()
        self.ctx.attempted(failure)
        everywhere: list[Trial] = self.ctx.all_gather(mine)
        # The first of the worst: out of memory is worse than refused, and that than accepted.
        worst = max(everywhere, key=lambda trial: (trial.out_of_memory, bool(trial.refused)))
        if worst.refused:
            return worst
        # Ranks that took as many pages have the same peak; the one with the smaller rest uses more of it.
        rank, fullest = max(enumerate(everywhere), key=lambda one: (one[1].peak, -one[1].by_kind.get("rest", 0.0)))
        place = rank * len(self.gpus) + fullest.place
        resident, first = max(one.resident for one in everywhere), max(one.first for one in everywhere)
        return Trial(resident, fullest.peak, first=first, by_kind=fullest.by_kind, place=place)

    def _clear(self) -> None:
        """Wait for what else failed work has left, or the next would be blamed for it; raise what a GPU reports."""
        try:
            Bench(self.devices, self.ctx).synchronize()
        except Exception as left:
            if reason_of(left) is Reason.DEVICE_FAULT:
                raise

    @spent_on(Activity.TRIAL)
    def _needs(self, build: Callable[[], Subject], pipelined: bool) -> Trial:
        """Bytes that stay, the most in the second step, and the first one's seconds: it also makes what stays.

        What stays is what the allocator keeps once its cache is empty: with the pool that a recorded graph has to
        itself, whose memory counts as allocated while it is recorded, and not when it is replayed.
        """
        bench = Bench(self.devices, self.ctx)
        empty_cache()
        allocated = self._each(torch.accelerator.memory_allocated)
        reserved = self._each(torch.accelerator.memory_reserved)
        subject = build()
        first = Bench(self.devices).block(subject.work, 1).own  # without ranks: one that cannot take it lets none wait
        if not self.gpus:
            return Trial(first=first)
        empty_cache()
        resident = max(_over(self._each(torch.accelerator.memory_reserved), reserved))
        for index in self.gpus:
            torch.accelerator.reset_peak_memory_stats(index)
        places = [torch.device(self.ctx.device.type, index) for index in self.gpus]
        several = pipelined or subject.turns > 1  # of which the largest counts
        by_kind = MemoryByKind(subject, places, micro_batches=several) if self.by_kind else None
        with by_kind.watching() if by_kind else nullcontext():
            for _ in range(subject.turns):  # the longest of unequal batches needs the most
                subject.work()
            bench.synchronize()
        peaks = dict(zip(places, _over(self._each(torch.accelerator.max_memory_allocated), allocated), strict=True))
        fullest = max(places, key=peaks.__getitem__)
        peak = max(resident, peaks[fullest])
        found = by_kind.found(fullest, peak) if by_kind else {}
        return Trial(resident, peak, first=first, by_kind=found, place=places.index(fullest))

    def _each(self, look: Callable[[int], int]) -> list[int]:
        return [look(index) for index in self.gpus]

    def warm_up(self) -> None:
        """cuBLAS takes its workspaces once in a process, from what a first trial would be charged for."""
        for index in self.gpus:
            x = torch.ones(8, 8, device=torch.device(self.ctx.device.type, index), requires_grad=True)
            (x @ x).sum().backward()

    @property
    def gpus(self) -> list[int]:
        """The GPUs that this process uses."""
        if self.ctx.device.type == "cpu":
            return []
        return [device.index for device in self.devices if isinstance(device, Device)] or [self.ctx.device.index or 0]

    def free(self) -> float:
        """Bytes that can still be used on the fullest GPU of any rank; without GPUs there is no limit."""
        if not self.gpus:
            return float("inf")
        (least,) = self.ctx.maximum([-min(map(_free, self.gpus))])
        return -least


def _free(index: int) -> float:
    free, total = torch.accelerator.get_memory_info(index)
    cached = torch.accelerator.memory_reserved(index) - torch.accelerator.memory_allocated(index)
    return free + cached - (1 - USABLE) * total


def _over(after: Sequence[int], before: Sequence[int]) -> list[float]:
    return [float(now - then) for now, then in zip(after, before, strict=True)]


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
        notes = [*self.notes, *([unequal_note(timing)] if timing.by_turn else [])]
        return replace(record, note="; ".join(notes)) if record.status == "ok" else record


def unequal_note(timing: Timing) -> str:
    """What a sample is where batches have unequal lengths, and how unequal the steps are."""
    times = [median(rounds) for rounds in zip(*timing.by_turn, strict=True)]
    shortest, longest = (1e3 * value for value in (min(times), max(times)))
    return f"mean over {len(times)} batches of unequal length: a step takes {shortest:.3g} to {longest:.3g} ms"


def refuse_unequal_batches(strategy: StrategyBuilder, at: Setting) -> None:
    """CannotBe, if the shapes of batches differ and the strategy needs them to be fixed, or the batch to be one."""
    if at.workload.varies and Division.STAGES in strategy.kind.divides:
        raise CannotBe("its batches have unequal lengths, and stages hand over tensors of fixed shapes")
    if at.workload.varies and strategy.kind is DATA_PARALLEL:
        raise CannotBe("its batches have unequal lengths, and nn.DataParallel divides one that is padded as a whole")


def tried(
    strategy: StrategyBuilder, at: Setting, small: Setting, *, trials: Trials, name: str, case: Case
) -> Fitting | Trial:
    """What can be timed at a setting, and is proven at a small one as well; or else the trial that says why not."""
    trial = trials.of(strategy, at)
    exact = not (at.workload.inexact or strategy.is_part)
    proof = Trial()
    if strategy.trains and not trial.refused:
        proof = trials.of(replace(strategy, build=strategy.trains), at)
    elif exact and trials.gpus and not trial.refused:
        proof = trials.of(strategy, small)
    if trial.refused or (proof.refused and not (exact and proof.out_of_memory)):
        return trial if trial.refused else proof
    variant = Variant(
        name=name,
        case=case,
        build=partial(strategy.build, trials.references),
        proven_at=_proven_at(at, small if exact and not proof.out_of_memory else None, part=strategy.is_part),
        timed_at=at,
        metered=not strategy.is_part,
    )
    norm = at.workload.recipe.clip
    notes = [AS_TIMED] * proof.out_of_memory + [f"clipped to a norm of {norm:.3g}"] * bool(norm)
    notes += [said for said in (strategy.note, strategy.remark(at)) if said]
    if exact and at.workload.no_mean and not proof.out_of_memory:
        apart = trials.references.apart(small.workload, _averaged(strategy, small))
        notes += [NO_MEAN.format(apart)] * (apart > BEYOND_ROUNDING)
    return Fitting(strategy, variant, trial, proof, tuple(notes))


def _averaged(strategy: StrategyBuilder, at: Setting) -> tuple[int, ...]:
    """Samples of each of the losses whose mean a step takes; replicas of nn.DataParallel have one loss for all."""
    if strategy.pipelined:
        return at.micro_sizes() * strategy.replicas
    shares = at.devices if strategy.kind.family is Family.DATA else strategy.replicas
    shares = 1 if strategy.kind is DATA_PARALLEL else shares
    return at.workload.micro_batch_sizes(*(at.workload.batch_size // shares,) * shares)


def _proven_at(at: Setting, small: Setting | None, *, part: bool) -> list[Setting]:
    """The small setting, if it can be; the step that is timed is always proven.

    Where gradients are clipped, also with a limit that is never reached: a clipped step hides how long they were.
    """
    settings, own = [small] if small else [], small or at
    if at.workload.recipe.clip and not part:
        unclipped = replace(own.workload, recipe=replace(own.workload.recipe, clip=math.inf))
        settings.append(replace(own, workload=unclipped))
    return settings


def timed(
    fitting: Sequence[Fitting],
    trials: Trials,
    rule: Rule,
    also: Callable[[Sequence[Fitting], Sequence[Timing]], Iterable[Record]] = lambda _fitting, _timings: (),
) -> Iterator[Record]:
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
    beside = (max(one.trial.peak - one.trial.resident, one.proof.peak) for one in group)
    return sum(one.trial.resident for one in group) + max(beside)


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
    bytes, and each further sample takes at most `slope` bytes. The next one that is tried is twice `start`, then at
    most LEAP times the largest that fitted, halfway to the smallest that did not, and never beyond where the line
    through the last two peaks meets `memory`: if only one rank ran out of memory, the others would wait for it in vain.
    """
    fits, above, leap = start, most + 1, 2
    while True:
        reach = fits + int((memory - known) / slope) if slope > 0 else above - 1
        middle = leap * fits if above > most else (fits + above) // 2
        batch = min(reach, middle, above - 1) // multiple * multiple
        if batch - fits < max(1, fits // GRAIN):
            return fits
        found = peak(batch)
        if found is None or found > memory:
            above = batch
        else:
            slope, fits, known, leap = (found - known) / (batch - fits), batch, found, LEAP
