"""Times the strategies of one number of devices in the same rounds: tried, proven, counted, timed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from scalecard import progress
from scalecard.distributed.context import RankContext
from scalecard.hardware.gpu_memory import empty_cache
from scalecard.measuring import budget
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

AS_TIMED = "compared with the plain loop as it is timed alone: the memory is too small for float64"
MOST = 64  # times the batch that is timed: the largest that is looked for
MORE = f"the largest that is tried: {MOST} times what is timed"


@dataclass(frozen=True)
class Fitting:
    """A variant that can be timed, and what it was seen to need: as timed, and for its proof."""

    variant: Variant
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
        return Trials(self.ctx, self.devices, Plainly(self.plainly.device, self.plainly.steps, counting=False))

    def _agreed(self, load: Load) -> Load:
        """As the first node examined it, whose ranks need not come first; a device holds the batch of one."""
        everywhere: list[Load] = self.ctx.all_gather(load)
        return replace(max(everywhere, key=lambda one: one.lr), each=load.batch_size)

    def times(
        self, load: Load, num_devices: int, scalings: Iterable[str], strategies: Iterable[Strategy], case: Case
    ) -> Iterator[Record]:
        """Step times of every strategy, or why there is none; of GPUs also the memory that each needs."""
        load, fitting = self._agreed(load), list[Fitting]()
        self.trials.warm_up()
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
            yield from self._timed(load, together)
        for one in fitting if self.trials.gpus else ():
            yield Record(case=one.variant.case, metric="peak_memory", unit="B", samples=[[one.trial.peak]])

    def _fitting(self, load: Load, num_devices: int, scaling: str, strategy: Strategy, case: Case) -> Fitting | Record:
        progress.detail(f"trying {strategy.name}")
        at = self._setting(load, num_devices, scaling, strategy)
        size = at.load.batch_size
        own: Case = {"workload": load.name, "strategy": strategy.name, **case, "scaling": scaling}
        own |= {"batch_size": size, "unit": load.unit, "units": load.units(size)}
        trial, small = self.trials.of(strategy, at), self._small(at, strategy)
        proof = Trial()
        if self.trials.gpus and not load.inexact and not trial.refused:
            proof = self.trials.of(strategy, small)
        if refused := trial.record(own) or (None if proof.out_of_memory else proof.record(own)):
            return refused
        variant = Variant(
            name=f"{strategy.name}, {scaling} scaling",
            case=own,
            build=partial(strategy.build, self.plainly),
            proven_at=[] if load.inexact or proof.out_of_memory else [small],  # the step that is timed is always proven
            timed_at=at,
        )
        return Fitting(variant, trial, proof)

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

    def _timed(self, load: Load, fitting: Sequence[Fitting]) -> Iterator[Record]:
        """What is not proven of a model of the user's has failed; of ours, the run ends."""
        variants, lenient = [one.variant for one in fitting], bool(load.file)
        timings = time_rounds(
            variants, devices=self.devices, rule=self.rule, ranks=self.ctx, energy=True, lenient=lenient
        )
        records = [timing.record("step_time") for timing in timings]
        del timings  # with what was timed
        empty_cache()
        for one, record in zip(fitting, records, strict=True):
            yield replace(record, note=AS_TIMED) if one.proof.out_of_memory and record.status == "ok" else record

    def largest_batches(
        self, load: Load, num_devices: int, scalings: Iterable[str], strategies: Iterable[Strategy], case: Case
    ) -> Iterator[Record]:
        """The largest batch that each device can have with each strategy, if it can have what one device has alone."""
        load = self._agreed(load)
        self.trials.warm_up()
        for strategy in strategies:
            own: Case = {"workload": load.name, "strategy": strategy.name, **case}
            progress.detail(f"the largest batch of {strategy.name}")
            if budget.over(self.ctx):
                yield Record.skipped(own, f"{LEFT_OUT}{budget.OVER}", metric="largest_batch", unit="samples")
                continue
            alone = self._trial_of_each(load, num_devices, strategy, load.batch_size)
            if not alone.refused:
                yield self._largest(load, num_devices, strategy, alone, own)

    def _trial_of_each(self, load: Load, num_devices: int, strategy: Strategy, batch: int) -> Trial:
        return self.trials.of(strategy, self._setting(replace(load, batch_size=batch), num_devices, "weak", strategy))

    def _largest(self, load: Load, num_devices: int, strategy: Strategy, alone: Trial, case: Case) -> Record:
        def peak(batch: int) -> float | None:
            trial = self._trial_of_each(load, num_devices, strategy, batch)
            return None if trial.refused else trial.peak

        most = MOST * load.batch_size
        found = largest(
            peak,
            load.batch_size,
            alone.peak,
            slope=(alone.peak - alone.resident) / load.batch_size,  # with the gradients, which do not grow: an excess
            memory=self.trials.free(),
            most=most,
            multiple=self.num_micro if strategy.pipelined else 1,
        )
        note = MORE if found + max(self.num_micro, found // 16) > most else ""
        return Record(case=case, metric="largest_batch", unit="samples", samples=[[float(found)]], note=note)


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
