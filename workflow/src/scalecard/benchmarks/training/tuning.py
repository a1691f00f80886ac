"""Which rungs make a workload's step faster: each tried alone, those that work one on top of the other, all timed."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from scalecard import progress
from scalecard.benchmarks.training.memory_trials import Fitting, Trial, Trials, timed, tried
from scalecard.benchmarks.training.strategy import (
    CHECKED_EACH,
    References,
    Setting,
    StrategyBuilder,
    in_train_mode,
    trained,
    with_compilation_checked,
)
from scalecard.distributed.context import RankContext
from scalecard.measuring import stopping_rule
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.proof import same_losses
from scalecard.measuring.stopping_rule import TRIALS_SHARE, Rule, budget_over, part_of_budget
from scalecard.parallel.ddp import wrap
from scalecard.parallel.step import state_of
from scalecard.parallel.tuned_step import ROUNDING, Roundings, TunedStep, cannot
from scalecard.records.axes import DTYPES, RUNGS, Case, combination
from scalecard.records.record import Check, Reason, Record
from scalecard.records.strategies import DDP, SINGLE, Strategy
from scalecard.workloads import reference
from scalecard.workloads.recipe import OptimizerSettings, in_layout
from scalecard.workloads.reference import trainable
from scalecard.workloads.workload import HOST, Workload

OWN = "the workload's own optimiser says itself whether it is fused"
NO_FLOAT32 = "in bf16 there are no products of float32 to be rounded"
LEFT_OUT = "left out of `rungs` in config.yaml"
MORE = "the largest batch that is tried: larger ones may fit as well"
ON_FEW = "proven on a few samples alone: the memory is too small for a plain loop over the batch that is timed"
UNPROVEN = "every plain loop that it would be compared with"
DRAWS = 5  # loops with random errors, the farthest of which says what is allowed


@dataclass(frozen=True)
class Combination:
    """The rungs of a step in their order; `count` batches add up to one update, each `factor` times the workload's."""

    rungs: tuple[str, ...] = ()
    count: int = 1
    factor: int = 1

    def __str__(self) -> str:
        return combination(self.case)

    @property
    def case(self) -> Case:
        """The axes that tell it from others: each rung's place, and what makes its batch larger."""
        larger = {"accumulate": self.count, "batch_factor": self.factor}
        places = {rung: place for place, rung in enumerate(self.rungs, 1)}
        return {**places, **{axis: times for axis, times in larger.items() if times > 1}}

    @property
    def rounding(self) -> str:
        """The rung that rounds most, if one rounds at all."""
        return next((rung for rung in reversed(ROUNDING) if rung in self.rungs), "")

    @property
    def seen(self) -> bool:
        """Whether the operations of its steps go through PyTorch's dispatcher, so that they can be counted."""
        return not {"compile", "graphs"} & {*self.rungs}

    def sizes(self, workload: Workload, devices: int) -> tuple[int, ...]:
        """Samples of every part that so many devices forward at a time, of a whole batch."""
        return workload.micro_batch_sizes(*[workload.batch_size // (devices * self.count)] * self.count * devices)

    def updates(self, optimizer: OptimizerSettings, steps: int = 1) -> dict[str, float]:
        """What counts those of so many steps, and how many: one by a single kernel is another thing."""
        if "fused" in self.rungs:
            return {"fused updates": steps}
        return {} if optimizer.own else {"updates": steps * optimizer.writes_per_step}


class RoundedReferences(References):
    """Reference results, also with random errors as large as a format's roundings."""

    def __init__(self, device: torch.device, steps: int, *, counting: bool = True) -> None:
        super().__init__(device, steps, counting=counting)
        self.loop = functools.cache(self._loop)

    def _loop(self, workload: Workload, sizes: tuple[int, ...], rung: str = "", seed: int = 0) -> tuple[float, float]:
        """The loss before and after a step in float32; with a rung, with errors like its roundings."""
        with Roundings(rung, seed) if rung else nullcontext():
            return workload.plain(self.device, sizes, self.times(workload), exactly=False, scored=True).losses

    def losses(self, workload: Workload, sizes: tuple[int, ...], rung: str) -> tuple[tuple[float, float], list[float]]:
        """In float32 before and after a step; after it, with random errors like a rung's roundings."""
        strayed = [self.loop(workload, sizes, rung, seed)[1] for seed in range(DRAWS)]
        return self.loop(workload, sizes), strayed


def subject(
    combination: Combination, ctx: RankContext, references: RoundedReferences, at: Setting, *, compared: bool = True
) -> Subject:
    """Every rank trains on its equal share of the batch, in parts of which batch normalisation sees one at a time.

    If it is not `compared`, nothing but float64 is: the memory is too small for the plain loop as it is timed.
    """
    workload = at.workload
    model = in_layout(workload.network(ctx.device), "channels_last" in combination.rungs)
    shared = trainable(model) if ctx.world_size > 1 else []
    module = wrap(model, ctx) if shared else model
    ((inputs, targets),) = workload.shared(ctx.device, ctx.rank, ctx.world_size)
    whole = combination.sizes(workload, ctx.world_size)
    sizes = whole[: len(whole) // ctx.world_size]
    parts = [(part.inputs, part.targets) for part in reference.split(inputs, targets, sizes)]
    optimizer = workload.optimizer_settings
    step = TunedStep(model, module, parts, combination.rungs, loss=workload.loss, optimizer=optimizer)
    counts = {**combination.updates(optimizer), "optimizer bytes": optimizer.state_bytes(trainable(model))}
    if combination.seen:
        rounded = workload.with_precision("bf16" if "bf16" in combination.rungs else "float32")
        counts |= {"forwards": len(sizes), **({} if workload.exact else references.counts(rounded, sizes))}
    if shared and not workload.exact:
        counts["all-reduced bytes"] = sum(parameter.nbytes for parameter in shared)
    made = trained(
        at,
        step,
        partial(state_of, model),
        references.at(workload, whole),
        references=references,
        modules=[module],
        devices=[ctx],
        counts=counts,
        optimizers=[step.optimizer],
        agreeing=lambda: shared,
    )
    if not workload.exact and (combination.rounding or not compared):
        prove = partial(_proven_by_loss, combination, ctx, references, at, step, model, whole, compared)
        made = in_train_mode(replace(made, prove=prove), workload, [module])
    return with_compilation_checked(made, [step.compiled]) if step.compiled else made


def plain_loops(combination: Combination, references: RoundedReferences, at: Setting) -> Subject:
    """All that such a step is compared with as it is timed, to see whether it fits; `references` keeps the results."""
    sizes = combination.sizes(at.workload, at.devices)
    rung = combination.rounding
    work = partial(references.losses, at.workload, sizes, rung) if rung else references.at(at.workload, sizes)
    return Subject(work=work, prove=tuple)


def _proven_by_loss(
    combination: Combination,
    ctx: RankContext,
    references: RoundedReferences,
    at: Setting,
    step: TunedStep,
    model: nn.Module,
    sizes: tuple[int, ...],
    compared: bool,
) -> Iterator[Check]:
    """The loss of the whole batch after a step, computed in float32, if it is compared with that of plain loops."""
    step()
    ctx.synchronize()
    if compared:
        workload, rung = at.workload, combination.rounding
        inputs, targets = workload.batch(workload.batch_size, ctx.device)
        ours = reference.loss_of(model, reference.split(inputs, targets, sizes), workload.loss)
        name = f"{workload.name}, {DTYPES[rung]}, after 1 step"
        yield from same_losses(name, DTYPES[rung], ours, *references.losses(workload, sizes, rung))


@dataclass(frozen=True)
class Ladder:
    """A workload on the ranks that train it, one per device, and what is tried: rungs, batches per update, batches.

    `workload` has the batch of one device, in float32, and `base` the rungs of its recipe, which every step has; `case`
    names the workload and says how many devices there are.
    """

    ctx: RankContext
    references: RoundedReferences
    workload: Workload
    base: tuple[str, ...]
    case: Case
    rule: Rule
    wanted: Sequence[str]
    counts: Sequence[int]
    factors: Sequence[int]

    @property
    def trials(self) -> Trials:
        """Of the same ranks."""
        return Trials(self.ctx, [self.ctx], self.references)

    @property
    def _kind(self) -> Strategy:
        return DDP if self.ctx.world_size > 1 else SINGLE

    def records(self) -> Iterator[Record]:
        """Step times of every combination, or why there is none; compile times; of GPUs also each one's memory."""
        self.trials.warm_up()
        fitting = dict[Combination, Fitting]()
        with part_of_budget(TRIALS_SHARE):
            yield from self._all_tried(fitting)
        if not fitting:
            return
        what, where = progress.counted(len(fitting), "combination"), progress.counted(self.ctx.world_size, "device")
        progress.doing(f"{self.workload.name}: {what} on {where}")
        yield from timed([*fitting.values()], self.trials, self.rule)

    def _all_tried(self, fitting: dict[Combination, Fitting]) -> Iterator[Record]:
        """What can be timed is added; nothing if the plain step cannot."""
        yield from self._tried(Combination(self.base), fitting)
        if not fitting:
            return
        on = self.base
        for rung, reason in self._reasons().items():
            alone, top = Combination((*self.base, rung)), Combination((*on, rung))
            if reason:
                yield Record.skipped(self._case(alone), reason, metric="step_time")
                continue
            yield from self._tried(alone, fitting)
            if alone in fitting and top != alone:  # what failed alone is not added to others
                yield from self._tried(top, fitting)
            on = (*on, rung) if top in fitting else on
        for rungs in dict.fromkeys([self.base, on]):
            yield from self._larger(rungs, fitting)

    def _reasons(self) -> Mapping[str, str]:
        """Why each further rung cannot be tried, or '': those that are wanted in their order, then the others."""
        model = self.workload.network(HOST)
        wanted = {rung: cannot(rung, self.ctx.device, model, self.ctx.world_size) for rung in self.wanted}
        if self.workload.recipe.optimizer == "own":
            wanted |= {"fused": OWN} if "fused" in wanted else {}
        if "bf16" in self.base:
            wanted |= {"tf32": NO_FLOAT32} if "tf32" in wanted else {}
        every = {**wanted, **{rung: LEFT_OUT for rung in RUNGS if rung not in wanted}}
        return {rung: reason for rung, reason in every.items() if rung not in self.base}

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
        size = self._setting(combination).workload.batch_size
        own: Case = {**self.case, "strategy": self._kind.name, **combination.case, "batch_size": size}
        return {**own, "unit": self.workload.unit, "units": self.workload.units(size)}

    def _setting(self, combination: Combination, *, exact: bool = False) -> Setting:
        """Each device has the workload's batch, that many times; for the proof a few samples, of whatever batch."""
        each = CHECKED_EACH if exact else self.workload.batch_size * combination.factor
        whole = each * combination.count * self.ctx.world_size
        larger = combination.factor > 1 and not exact
        workload = replace(self.workload, batch_size=whole, exact=exact, device_only=larger)
        return Setting(workload, self.ctx.world_size)

    def _tried(self, combination: Combination, fitting: dict[Combination, Fitting]) -> Iterator[Record]:
        """What can be timed is added; else the record says why not. Of compiled code, its first step is timed."""
        progress.detail(f"trying {combination}")
        case = self._case(combination)
        if budget_over(self.ctx):
            yield Record.skipped(case, stopping_rule.LEFT_OUT, reason=Reason.NO_TIME, metric="step_time")
            return
        found = self._fitting(combination, case)
        if isinstance(found, Trial):
            reason = Reason.OUT_OF_MEMORY if found.out_of_memory else Reason.ERROR
            yield Record.failed(case, found.refused, reason=reason, metric="step_time")
            return
        if combination == Combination((*self.base, "compile")):  # the others find some of their code in its cache
            yield Record(case=case, metric="compile_time", unit="s", samples=[[found.trial.first]])
        fitting[combination] = found

    def _fitting(self, combination: Combination, case: Case) -> Fitting | Trial:
        found = tried(
            StrategyBuilder(self._kind, partial(subject, combination, self.ctx)),
            self._setting(combination),
            self._setting(combination, exact=True),
            trials=self.trials,
            name=str(combination),
            case=case,
        )
        if isinstance(found, Trial) or combination.factor == 1:
            return found
        if combination.factor == max(self.factors):
            found = replace(found, notes=(*found.notes, MORE))
        # Whether the GPU holds what a larger batch is compared with; the host would take too long.
        plain = StrategyBuilder(SINGLE, lambda _, at: plain_loops(combination, self.references, at))
        if not (self.trials.gpus and self.trials.of(plain, self._setting(combination)).out_of_memory):
            return found
        if not found.variant.proven_at:
            return Trial(refused=UNPROVEN, out_of_memory=True)
        build = partial(subject, combination, self.ctx, self.references, compared=False)
        return replace(found, variant=replace(found.variant, build=build), notes=(*found.notes, ON_FEW))
