"""Times the strategies of one number of devices in the same rounds: tried, proven, counted, timed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from scalecard import progress
from scalecard.benchmarks.training.memory_trials import GRAIN, Fitting, Trials, largest_batch, timed, tried
from scalecard.benchmarks.training.predicted_memory import predicted
from scalecard.benchmarks.training.stage_timing import STAGE
from scalecard.benchmarks.training.strategy import (
    CHECKED_EACH,
    LOCAL,
    UNSYNCHRONISED,
    References,
    Setting,
    StrategyBuilder,
)
from scalecard.distributed.context import RankContext
from scalecard.hardware.failures import in_one_line
from scalecard.measuring import tracing
from scalecard.measuring.case_variant import Timing
from scalecard.measuring.stopping_rule import LEFT_OUT, TRIALS_SHARE, Rule, budget_over, part_of_budget
from scalecard.measuring.timer import Bench, Synchronised
from scalecard.records.axes import MEMORY, Case
from scalecard.records.record import Reason, Record
from scalecard.records.strategies import Strategy
from scalecard.workloads.workload import Workload

MOST = 64  # times the batch that is timed: the largest that is looked for
MORE = f"the largest that is tried: {MOST} times what is timed"

UNSEEN = "the step was not seen to begin a backward and an update by PyTorch's own functions"


@dataclass(frozen=True)
class Group:
    """A workload on the ranks and devices that measure it together, and how.

    `workload` has the batch of one device; `case` names it and says how many devices there are. Pipelines take at most
    `num_micro` micro-batches. With `trace`, one more step of each strategy is kept as a trace, and with `by_kind` it is
    looked at what each needs memory for.
    """

    ctx: RankContext
    devices: Sequence[Synchronised]
    references: References
    workload: Workload
    case: Case
    scalings: Sequence[str]
    rule: Rule
    num_micro: int
    trace: bool = False
    by_kind: bool = False

    @property
    def num_devices(self) -> int:
        """Of all ranks."""
        return self.ctx.world_size * len(self.devices)

    @property
    def trials(self) -> Trials:
        """Of the same ranks and devices."""
        return Trials(self.ctx, self.devices, self.references, by_kind=self.by_kind)

    def times(self, strategies: Iterable[StrategyBuilder]) -> Iterator[Record]:
        """Step times of every strategy, or why there is none; of GPUs also the memory that each needs."""
        fitting = list[Fitting]()
        self.trials.warm_up()
        with part_of_budget(TRIALS_SHARE):
            for found in self._tried(strategies):
                if isinstance(found, Record):
                    yield found
                else:
                    fitting.append(found)
        variants, where = progress.counted(len(fitting), "variant"), progress.counted(self.num_devices, "device")
        progress.doing(f"{self.workload.name}: {variants} on {where}")
        yield from timed(fitting, self.trials, self.rule, self._of_ranks_and_traces)
        for one in (one for one in fitting if one.trial.by_kind and not one.strategy.is_part):
            yield from self._memory_by_kind(one)

    def _memory_by_kind(self, one: Fitting) -> Iterator[Record]:
        """What a strategy's memory is needed for, measured and predicted, after the timing: a file of the user's may
        keep what it made without data.

        The first rank predicts, whose records count.
        """

        def record(metric: str, kind: str, size: float | None, why_not: str = "") -> Record:
            case: Case = {**one.variant.case, "kind": kind}
            if size is None:
                return Record.skipped(case, why_not, metric=metric, unit="B")
            return Record(case=case, metric=metric, unit="B", samples=[[size]])

        for kind in MEMORY:
            yield record("memory_by_kind", kind, one.trial.by_kind.get(kind), UNSEEN)
        if self.ctx.rank:
            return
        where = {"place": one.trial.place, "nodes": self.ctx.layout.nodes, "replicas": one.strategy.replicas}
        try:
            expected = predicted(one.strategy.kind, one.variant.timed_at, self.ctx.device, **where)
        except Exception as error:  # of a file of the user's, whose model differs without data: it costs no more
            yield record("predicted_memory", "parameters", None, in_one_line(error))
            return
        for kind, size in expected.by_kind.items():
            yield record("predicted_memory", kind, size)
        if expected.why_not:
            yield record("predicted_memory", "activations", None, expected.why_not)

    def _tried(self, strategies: Iterable[StrategyBuilder]) -> Iterator[Fitting | Record]:
        """Each with its settings; the stages of what cannot be used are left out, and none is timed twice."""
        refused, alone = list[tuple[Strategy, Setting]](), list[Case]()
        for strategy in strategies:
            for case, at in self._settings(strategy):
                if strategy.metric == STAGE and (case in alone or (strategy.kind, at) in refused):
                    continue
                if strategy.metric == STAGE and not strategy.pipelined and self.workload.recipe.accumulate > 1:
                    continue  # the whole batch is never forwarded at once
                found = self._fitting(strategy, case, at)
                if strategy.metric == STAGE:
                    alone.append(case)
                elif isinstance(found, Record):
                    refused.append((strategy.kind, at))
                yield found

    def _settings(self, strategy: StrategyBuilder) -> Iterator[tuple[Case, Setting]]:
        """What it is timed with: every scaling, or the batch of one device and half, a quarter ... of it."""
        if strategy.metric == LOCAL:
            for size in halves(self.workload.batch_size):
                smaller = Setting(replace(self.workload, batch_size=size), 1, self.workload.recipe.accumulate)
                yield {**self.case, **self._counted(size)}, smaller
            return
        for scaling in self.scalings:
            at = self.setting(self.workload.batch_size, scaling, strategy)
            yield {**self.case, **self._axes(strategy, scaling, at)}, at

    def _axes(self, strategy: StrategyBuilder, scaling: str, at: Setting) -> Case:
        batch: Case = {"scaling": scaling, "batch_size": at.workload.batch_size}
        if not strategy.of_batch:
            return strategy.axes
        if strategy.metric == STAGE:
            return {**batch, "split_size": at.split_size, **strategy.axes}
        return {"strategy": strategy.kind.name, **batch, **self._counted(at.workload.batch_size), **strategy.axes}

    def _counted(self, size: int) -> Case:
        return {"batch_size": size, "unit": self.workload.unit, "units": self.workload.units(size)}

    def _fitting(self, strategy: StrategyBuilder, case: Case, at: Setting) -> Fitting | Record:
        progress.detail(f"trying {strategy.kind.name}")
        if budget_over(self.ctx):
            return Record.skipped(case, LEFT_OUT, reason=Reason.NO_TIME, metric=strategy.metric)
        name = f"{strategy.metric} of {strategy.kind.name}, {', '.join(map(str, case.values()))}"
        if before := self.ctx.failed.get(name):
            note, reason = before
            return Record.failed(case, note, reason=reason, metric=strategy.metric)
        self.ctx.begin(name)
        found = tried(strategy, at, self._small(at, strategy), trials=self.trials, name=name, case=case)
        self.ctx.begin("")
        return found if isinstance(found, Fitting) else found.record(case, strategy.metric)

    def setting(self, batch: int, scaling: str, strategy: StrategyBuilder) -> Setting:
        """One device's batch for all, or one for each; pipelines cut it into equal micro-batches."""
        whole = batch * (self.num_devices if scaling == "weak" else 1)
        shared = max(1, whole // strategy.replicas)
        num_micro = max(count for count in range(1, min(self.num_micro, shared) + 1) if shared % count == 0)
        workload = replace(self.workload, batch_size=whole)
        return Setting(workload, self.num_devices, num_micro if strategy.pipelined else workload.recipe.accumulate)

    def _small(self, at: Setting, strategy: StrategyBuilder) -> Setting:
        """What equality is proven on: a few samples of every device, in float64."""
        samples = CHECKED_EACH * at.devices
        workload = replace(at.workload, batch_size=samples, exact=True)
        num_micro = samples // strategy.replicas if strategy.pipelined else workload.recipe.accumulate
        return Setting(workload, at.devices, num_micro)

    def _of_ranks_and_traces(self, fitting: Sequence[Fitting], timings: Sequence[Timing]) -> Iterator[Record]:
        """What each rank took by itself, in the same rounds; with `trace`, one more step of each strategy, traced."""
        pairs = list(zip(fitting, timings, strict=True))
        for timing in (timing for one, timing in pairs if one.strategy.metric == UNSYNCHRONISED):
            everywhere: list[list[float]] = self.ctx.all_gather(timing.own)
            for rank, samples in enumerate(everywhere if all(everywhere) else ()):
                of_rank = partial(Record, case={**timing.variant.case, "rank": rank}, telemetry=[timing.telemetry])
                yield of_rank(metric="rank_time", unit="s", samples=[samples])
        for one, timing in pairs if self.trace else ():  # last: a launch that a trace ends has its records
            if timing.able and not one.strategy.is_part:
                case = timing.variant.case
                name = " ".join(str(case[axis]) for axis in ("workload", "strategy", "devices", "scaling"))
                name += f" {case['nodes']} nodes" if "nodes" in case else ""
                tracing.trace(name, timing.able.subject.work, Bench(self.devices, self.ctx))

    def largest_batches(self, strategies: Iterable[StrategyBuilder]) -> Iterator[Record]:
        """The largest batch that each device can have with each strategy, if it can have what one device has alone."""
        self.trials.warm_up()
        for strategy in (strategy for strategy in strategies if not strategy.is_part):
            case: Case = {**self.case, "strategy": strategy.kind.name}
            progress.detail(f"the largest batch of {strategy.kind.name}")
            if budget_over(self.ctx):
                late = partial(Record.skipped, reason=Reason.NO_TIME, metric="largest_batch", unit="samples")
                yield late(case, LEFT_OUT)
            else:
                yield from self._largest(strategy, case)

    def _largest(self, strategy: StrategyBuilder, case: Case) -> Iterator[Record]:
        def peak(batch: int) -> float | None:
            trial = self.trials.of(strategy, self.setting(batch, "weak", strategy))
            return None if trial.refused else trial.peak

        start, most = self.workload.batch_size, MOST * self.workload.batch_size
        known = peak(start)
        if known is None:
            return
        found = largest_batch(
            peak,
            start,
            known,
            slope=known / start,  # with the parameters and gradients, which do not grow: an excess
            memory=self.trials.free(),
            most=most,
            multiple=self.num_micro if strategy.pipelined else 1,
        )
        note = MORE if found + max(self.num_micro, found // GRAIN) > most else ""
        yield Record(case=case, metric="largest_batch", unit="samples", samples=[[float(found)]], note=note)


def halves(batch: int) -> list[int]:
    """The batch, half of it, and so on to one sample."""
    return [batch, *halves(batch // 2)] if batch > 1 else [batch]
