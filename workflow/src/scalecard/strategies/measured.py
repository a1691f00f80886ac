"""Times the strategies of one number of devices in the same rounds: tried, proven, counted, timed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from scalecard import progress
from scalecard.distributed.context import RankContext
from scalecard.hardware.gpu_memory import empty_cache
from scalecard.measuring import budget, decisions
from scalecard.measuring.bench import Synchronised
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.rule import Rule
from scalecard.measuring.variant import Variant
from scalecard.records.again import LEFT_OUT
from scalecard.records.record import Case, Record
from scalecard.strategies.largest import largest
from scalecard.strategies.load import Load
from scalecard.strategies.plainly import CHECKED_EACH, Plainly, Setting
from scalecard.strategies.strategy import Strategy
from scalecard.strategies.trial import Trial, Trials

NO_PEAK = "CPU workers and ranks share the host's memory: there is no peak per device"
NO_LIMIT = "CPU workers and ranks share the host's memory: no batch is the largest that a device holds"
MOST = 64  # times the batch that is timed: the largest that is looked for


@dataclass(frozen=True)
class Fitting:
    """A variant that can be timed, and what it was seen to need: as timed, and for its proof."""

    variant: Variant
    strategy: Strategy
    trial: Trial
    proof: Trial


@dataclass(frozen=True)
class Group:
    """The ranks and devices that measure together, and how: `num_micro` is how many micro-batches pipelines take."""

    ctx: RankContext
    devices: Sequence[Synchronised]
    plainly: Plainly
    rule: Rule
    num_micro: int

    @property
    def trials(self) -> Trials:
        """Of the same ranks and devices."""
        return Trials(self.ctx, self.devices)

    def records(
        self, load: Load, num_devices: int, scalings: Iterable[str], strategies: Iterable[Strategy], case: Case
    ) -> Iterator[Record]:
        """Step times of every strategy, or why there is none; then what each needs of the GPUs' memory."""
        load, *_ = self.ctx.all_gather(load)  # as the first node examined it
        fitting = list[Fitting]()
        for strategy in strategies:
            for scaling in scalings:
                found = self._fitting(load, num_devices, scaling, strategy, case)
                if isinstance(found, Record):
                    yield found
                else:
                    fitting.append(found)
        variants, where = progress.counted(len(fitting), "variant"), progress.counted(num_devices, "device")
        progress.doing(f"{load.name}: {variants} on {where}")
        for together in side_by_side(fitting, self.trials.free()):
            yield from self._timed(load, [one.variant for one in together])
        yield from self._memory(load, num_devices, fitting, case)

    def _fitting(
        self, load: Load, num_devices: int, scaling: str, strategy: Strategy, case: Case
    ) -> "Fitting | Record":
        progress.detail(f"trying {strategy.name}")
        at = self._setting(load, num_devices, scaling, strategy)
        size = at.load.batch_size
        own: Case = {"workload": load.name, "strategy": strategy.name, **case, "scaling": scaling}
        own |= {"batch_size": size, "unit": load.unit, "units": load.units(size)}
        trial = self.trials.of(strategy, self.plainly, at)
        refused = trial.record(own)
        if refused:
            return refused
        small = self._small(at, strategy)
        proof = self.trials.of(strategy, self.plainly, small) if self.trials.gpus and not load.inexact else Trial()
        variant = Variant(
            name=f"{strategy.name}, {scaling} scaling",
            case=own,
            build=partial(strategy.build, self.plainly),
            proven_at=[] if load.inexact or proof.out_of_memory else [small],  # the step that is timed is always proven
            timed_at=at,
        )
        return Fitting(variant, strategy, trial, proof)

    def _setting(self, load: Load, num_devices: int, scaling: str, strategy: Strategy) -> Setting:
        """One device's batch for all, or one for each; pipelines cut it into equal micro-batches."""
        whole = load.batch_size * (num_devices if scaling == "weak" else 1)
        shared = max(1, whole // strategy.replicas)
        num_micro = max(count for count in range(1, min(self.num_micro, shared) + 1) if shared % count == 0)
        return Setting(replace(load, batch_size=whole), num_devices, num_micro if strategy.pipelined else 1)

    def _small(self, at: Setting, strategy: Strategy) -> Setting:
        """What equality is proven on: a few samples of every device, in float64."""
        load = replace(at.load, batch_size=CHECKED_EACH * at.devices, exact=True)
        return Setting(load, at.devices, CHECKED_EACH * at.devices // strategy.replicas if strategy.pipelined else 1)

    def _timed(self, load: Load, variants: Sequence[Variant]) -> Iterator[Record]:
        """What is not proven of a model of the user's has failed; of ours, the run ends."""
        timings = time_rounds(
            variants, devices=self.devices, rule=self.rule, ranks=self.ctx, energy=True, lenient=bool(load.file)
        )
        records = [timing.record("step_time") for timing in timings]
        del timings  # with what was timed
        empty_cache()
        yield from records

    def _memory(self, load: Load, num_devices: int, fitting: Sequence[Fitting], case: Case) -> Iterator[Record]:
        if not self.trials.gpus:
            yield Record.skipped({"workload": load.name}, NO_PEAK, metric="peak_memory", unit="B")
            yield Record.skipped({"workload": load.name}, NO_LIMIT, metric="largest_batch", unit="samples")
            return
        for one in fitting:
            yield Record(case=one.variant.case, metric="peak_memory", unit="B", samples=[[one.trial.peak]])
        place = "-".join(str(value) for value in (load.name, *case.values()))
        (first,) = self.ctx.maximum([float(self.ctx.leads and decisions.first(f"largest-{place}"))])
        if first:
            for one in {one.strategy: one for one in fitting}.values():  # of both scalings, the one with more samples
                yield self._largest(one, {"workload": load.name, "strategy": one.strategy.name, **case})

    def _largest(self, one: Fitting, case: Case) -> Record:
        """The largest batch per device."""
        strategy, at = one.strategy, one.variant.timed_at
        if budget.over(self.ctx):
            return Record.skipped(case, f"{LEFT_OUT}{budget.OVER}", metric="largest_batch", unit="samples")
        progress.detail(f"the largest batch of {strategy.name}")
        start = max(1, at.load.batch_size // at.devices)
        multiple = self.num_micro if strategy.pipelined else 1

        def peak(batch: int) -> float | None:
            tried = self._setting(replace(at.load, batch_size=batch), at.devices, "weak", strategy)
            trial = self.trials.of(strategy, self.plainly, tried)
            return None if trial.refused else trial.peak

        memory, most = self.trials.free(), MOST * start
        found = largest(peak, start, one.trial.peak, memory=memory, most=most, multiple=multiple)
        note = f"the largest that was tried: {MOST} times what is timed" if found >= MOST * start else ""
        return Record(case=case, metric="largest_batch", unit="samples", samples=[[float(found)]], note=note)


def side_by_side(fitting: Sequence[Fitting], memory: float) -> Iterator[list[Fitting]]:
    """Those that the GPUs hold at the same time, in as few groups as their order allows; only these are compared."""
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
