"""Which rungs make a workload's step faster: each tried alone, those that work one on top of the other, all timed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from scalecard import progress
from scalecard.benchmarks.training.dry_run import Trial, Trials
from scalecard.benchmarks.training.memory_trials import Fitting, timed, tried
from scalecard.benchmarks.training.reference_cache import CHECKED_EACH, Setting
from scalecard.benchmarks.training.strategy import StrategyBuilder
from scalecard.benchmarks.training.tuned_workload import Combination, PlainlyRounded, plain_loops, subject
from scalecard.distributed.context import RankContext
from scalecard.measuring import budget
from scalecard.measuring.stopping_rule import Rule
from scalecard.parallel.tuned_step import cannot
from scalecard.records.axes import RUNGS
from scalecard.records.record import Case, Reason, Record
from scalecard.records.strategies import DDP, SINGLE, Strategy
from scalecard.workloads.workload import HOST, Load

LEFT_OUT = "left out of `rungs` in config.yaml"
MORE = "the largest batch that is tried: larger ones may fit as well"
ON_FEW = "proven on a few samples alone: the memory is too small for a plain loop over the batch that is timed"
UNPROVEN = "every plain loop that it would be compared with"


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

    @property
    def _kind(self) -> Strategy:
        return DDP if self.ctx.world_size > 1 else SINGLE

    def records(self) -> Iterator[Record]:
        """Step times of every combination, or why there is none; compile times; of GPUs also each one's memory."""
        self.trials.warm_up()
        fitting = dict[Combination, Fitting]()
        yield from self._tried(Combination(), fitting)
        if not fitting:
            return
        on = tuple[str, ...]()
        for rung, reason in self._reasons().items():
            alone, top = Combination((rung,)), Combination((*on, rung))
            if reason:
                yield Record.skipped(self._case(alone), reason, metric="step_time")
                continue
            yield from self._tried(alone, fitting)
            if alone in fitting and top != alone:  # what failed alone is not added to others
                yield from self._tried(top, fitting)
            on = (*on, rung) if top in fitting else on
        for rungs in dict.fromkeys([(), on]):
            yield from self._larger(rungs, fitting)
        what, where = progress.counted(len(fitting), "combination"), progress.counted(self.ctx.world_size, "device")
        progress.doing(f"{self.load.name}: {what} on {where}")
        yield from timed([*fitting.values()], self.trials, self.rule)

    def _reasons(self) -> Mapping[str, str]:
        """Why each rung cannot be tried, or '': those that are wanted in their order, then the others."""
        model = self.load.network(HOST)
        wanted = {rung: cannot(rung, self.ctx.device, model, self.ctx.world_size) for rung in self.wanted}
        return {**wanted, **{rung: LEFT_OUT for rung in RUNGS if rung not in wanted}}

    def _larger(self, rungs: tuple[str, ...], fitting: dict[Combination, Fitting]) -> Iterator[Record]:
        """More batches per update, and batches that are larger and larger until one cannot be trained, on rungs."""
        failed = ""
        for count in self.counts:
            yield from self._tried(Combination(rungs, count=count), fitting)
        for factor in self.factors:
            larger = Combination(rungs, factor=factor)
            if failed:
                yield Record.skipped(self._case(larger), failed, metric="step_time")
                continue
            for record in self._tried(larger, fitting):
                failed = f"batch x{factor} failed: {record.why}" if record.status == "failed" else ""
                yield record

    def _case(self, combination: Combination) -> Case:
        size = self._setting(combination).load.batch_size
        own: Case = {"strategy": self._kind.name, **combination.case}
        return {**self.case, **own, "batch_size": size, "unit": self.load.unit, "units": self.load.units(size)}

    def _setting(self, combination: Combination, *, exact: bool = False) -> Setting:
        """Each device has the workload's batch, that many times; for the proof a few samples, of whatever batch."""
        each = CHECKED_EACH if exact else self.load.batch_size * combination.factor
        whole = each * combination.count * self.ctx.world_size
        larger = combination.factor > 1 and not exact
        load = replace(self.load, batch_size=whole, exact=exact, device_only=larger)
        return Setting(load, self.ctx.world_size)

    def _tried(self, combination: Combination, fitting: dict[Combination, Fitting]) -> Iterator[Record]:
        """What can be timed is added; else the record says why not. Of compiled code, its first step is timed."""
        progress.detail(f"trying {combination}")
        case = self._case(combination)
        if budget.over(self.ctx):
            yield Record.skipped(case, budget.LEFT_OUT, reason=Reason.NO_TIME, metric="step_time")
            return
        found = self._fitting(combination, case)
        if isinstance(found, Trial):
            reason = Reason.OUT_OF_MEMORY if found.out_of_memory else Reason.ERROR
            yield Record.failed(case, found.refused, reason=reason, metric="step_time")
            return
        if combination == Combination(("compile",)):  # the others find some of their code in its cache
            yield Record(case=case, metric="compile_time", unit="s", samples=[[found.trial.first]])
        fitting[combination] = found

    def _fitting(self, combination: Combination, case: Case) -> Fitting | Trial:
        """What can be timed, or why not."""
        found = tried(
            StrategyBuilder(self._kind, partial(subject, combination, self.ctx)),
            self._setting(combination),
            self._setting(combination, exact=True),
            trials=self.trials,
            plainly=self.plainly,
            name=str(combination),
            case=case,
        )
        if isinstance(found, Trial) or combination.factor == 1:
            return found
        if combination.factor == max(self.factors):
            found = replace(found, notes=(*found.notes, MORE))
        return found if self._compares(combination) else self._on_few(found, combination)

    def _compares(self, combination: Combination) -> bool:
        """Whether the GPU holds what a larger batch is compared with; the host would take too long."""
        plain = StrategyBuilder(SINGLE, lambda _, at: plain_loops(combination, self.plainly, at))
        return not (self.trials.gpus and self.trials.of(plain, self._setting(combination)).out_of_memory)

    def _on_few(self, found: Fitting, combination: Combination) -> Fitting | Trial:
        if not found.variant.proven_at:
            return Trial(refused=UNPROVEN, out_of_memory=True)
        build = partial(subject, combination, self.ctx, self.plainly, compared=False)
        return replace(found, variant=replace(found.variant, build=build), notes=(*found.notes, ON_FEW))
