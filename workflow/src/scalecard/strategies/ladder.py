"""Which rungs make a workload's step faster: each tried alone, those that work one on top of the other, all timed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from scalecard import progress
from scalecard.distributed.context import RankContext
from scalecard.hardware.gpu_memory import empty_cache
from scalecard.measuring import budget
from scalecard.measuring.bench import Bench
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.rule import Rule
from scalecard.measuring.variant import Subject, Variant
from scalecard.records.again import LEFT_OUT as LATE
from scalecard.records.record import Case, Record
from scalecard.strategies.fitting import AS_TIMED, Fitting, side_by_side
from scalecard.strategies.load import HOST, Load
from scalecard.strategies.plainly import CHECKED_EACH, Setting
from scalecard.strategies.strategy import Strategy
from scalecard.strategies.trial import Trial, Trials
from scalecard.strategies.tuned import Combination, PlainlyRounded, subject
from scalecard.training.tuned import RUNGS, cannot

BASELINE = "float32"
POOL = "a graph keeps its memory in a pool of its own, which PyTorch's peak does not show"
LEFT_OUT = "left out of `rungs` in config.yaml"


@dataclass(frozen=True)
class Step:
    """A combination, which of its rungs was added last, and to what."""

    rung: str
    on: str
    combination: Combination

    @property
    def name(self) -> str:
        """For the terminal."""
        return f"{self.rung} on {self.on}" if self.on else self.rung


@dataclass(frozen=True)
class Ladder:
    """A workload on the ranks that train it, one per device, and what is tried: rungs, batches per update, batches.

    `load` has the batch of one device; `case` names the workload and says how many devices there are.
    """

    ctx: RankContext
    plainly: PlainlyRounded
    load: Load
    case: Case
    rule: Rule
    wanted: Sequence[str]
    counts: Sequence[int]
    factors: Sequence[int]

    @property
    def trials(self) -> Trials:
        """Of the same ranks."""
        return Trials(self.ctx, [self.ctx], PlainlyRounded(self.plainly.device, self.plainly.steps, counting=False))

    def records(self) -> Iterator[Record]:
        """Step times of every combination, or why there is none; compile times; of GPUs also each one's memory."""
        self.trials.warm_up()
        fitting = dict[Step, Fitting]()
        yield from self._tried(Step(BASELINE, "", Combination()), fitting)
        if not fitting:
            return
        on = tuple[str, ...]()
        for rung in (*self.wanted, *(rung for rung in RUNGS if rung not in self.wanted)):
            alone, top = Step(rung, "", Combination((rung,))), Step(rung, " + ".join(on), Combination((*on, rung)))
            if reason := self._cannot(rung):
                yield Record.skipped(self._case(alone), reason, metric="step_time")
                continue
            yield from self._tried(alone, fitting)
            if alone in fitting and top != alone:  # what failed alone is not added to others
                yield from self._tried(top, fitting)
            on = (*on, rung) if top in fitting else on
        for more in self._batches(on):
            yield from self._tried(more, fitting)
        yield from self._timed(fitting)

    def _cannot(self, rung: str) -> str:
        if rung not in self.wanted:
            return LEFT_OUT
        return cannot(rung, self.ctx.device, self.load.network(HOST), self.ctx.world_size)

    def _batches(self, on: tuple[str, ...]) -> Iterator[Step]:
        """More batches per update, and larger ones, on the plain step and on all rungs that work."""
        for rungs in dict.fromkeys([(), on]):
            for count in self.counts:
                yield Step(f"accumulate {count}", " + ".join(rungs), Combination(rungs, count=count))
            for factor in self.factors:
                yield Step(f"batch x{factor}", " + ".join(rungs), Combination(rungs, factor=factor))

    def _case(self, step: Step) -> Case:
        size = self._setting(step.combination).load.batch_size
        own: Case = {
            "strategy": "DDP" if self.ctx.world_size > 1 else "single device",
            "rung": step.rung,
            "on": step.on,
        }
        return {**self.case, **own, "batch_size": size, "unit": self.load.unit, "units": self.load.units(size)}

    def _setting(self, combination: Combination, *, exact: bool = False) -> Setting:
        """Each device has the workload's batch, that many times; for the proof a few samples."""
        each = CHECKED_EACH if exact else self.load.batch_size
        whole = each * combination.factor * combination.count * self.ctx.world_size
        return Setting(replace(self.load, batch_size=whole, exact=exact), self.ctx.world_size)

    def _tried(self, step: Step, fitting: dict[Step, Fitting]) -> Iterator[Record]:
        """What can be timed is added; else the record says why not. Of compiled code, its first step is timed."""
        progress.detail(f"trying {step.name}")
        at, case, first = self._setting(step.combination), self._case(step), list[float]()
        if budget.over(self.ctx):
            yield Record.skipped(case, f"{LATE}{budget.OVER}", metric="step_time")
            return
        build, small = partial(subject, step.combination, self.ctx), self._setting(step.combination, exact=True)
        strategy = Strategy(step.name, build)
        trial = self.trials.of(replace(strategy, build=partial(_first_timed, self.ctx, build, first)), at)
        exact = not self.load.inexact
        proof = self.trials.of(strategy, small) if exact and self.trials.gpus else Trial()
        if refused := trial.refused or ("" if proof.out_of_memory else proof.refused):
            yield Record.failed(case, refused, metric="step_time")
            return
        if step.rung == "compile" and not step.on:  # the others find some of their code in its cache
            yield Record(case=case, metric="compile_time", unit="s", samples=[self.ctx.maximum(first)])
        variant = Variant(
            name=step.name,
            case=case,
            build=partial(build, self.plainly),
            proven_at=[small] if exact and not proof.out_of_memory else [],  # the step that is timed is always proven
            timed_at=at,
        )
        fitting[step] = Fitting(strategy, variant, trial, proof)

    def _timed(self, fitting: Mapping[Step, Fitting]) -> Iterator[Record]:
        """On GPUs and of the user's models, what is not proven has failed, and the others are timed."""
        what, lenient = progress.counted(len(fitting), "combination"), bool(self.load.file or self.trials.gpus)
        progress.doing(f"{self.load.name}: {what} on {progress.counted(self.ctx.world_size, 'device')}")
        for together in side_by_side([*fitting.values()], self.trials.free()):
            timings = time_rounds(
                [one.variant for one in together],
                devices=[self.ctx],
                rule=self.rule,
                ranks=self.ctx,
                energy=True,
                lenient=lenient,
            )
            records = [timing.record("step_time") for timing in timings]
            del timings  # with what was timed
            empty_cache()
            for one, record in zip(together, records, strict=True):
                yield replace(record, note=AS_TIMED) if one.proof.refused and record.status == "ok" else record
        for step, one in fitting.items() if self.trials.gpus else ():
            yield _memory(step, one)


def _memory(step: Step, one: Fitting) -> Record:
    if "graphs" in step.combination.rungs:
        return Record.skipped(one.variant.case, POOL, metric="peak_memory", unit="B")
    return Record(case=one.variant.case, metric="peak_memory", unit="B", samples=[[one.trial.peak]])


def _first_timed(
    ctx: RankContext, build: Callable[[Any, Setting], Subject], first: list[float], plainly: Any, at: Setting
) -> Subject:
    """The subject, whose first call is timed on this rank: in it everything is compiled."""
    made = build(plainly, at)

    def work() -> None:
        if first:
            made.work()
        else:
            first.append(Bench([ctx]).block(made.work, 1)[1])

    return replace(made, work=work)
