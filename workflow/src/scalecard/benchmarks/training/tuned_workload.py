"""A workload's step with some rungs of tuning, on one device or under DDP: built, proven and counted."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from scalecard.benchmarks.training.reference_cache import Plainly, Setting
from scalecard.benchmarks.training.strategy import in_train_mode, trained
from scalecard.distributed.context import RankContext
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.proof import same_losses
from scalecard.parallel.ddp import wrap
from scalecard.parallel.monte_carlo_arithmetic import Roundings
from scalecard.parallel.step import state_of
from scalecard.parallel.tuned_step import ROUNDING, TunedStep, in_layout
from scalecard.records.axes import combination
from scalecard.records.record import Case, Check
from scalecard.workloads import reference
from scalecard.workloads.nested import chunks, rows
from scalecard.workloads.reference import trainable
from scalecard.workloads.workload import Load

DRAWS = 5  # loops with random errors, the farthest of which says what is allowed
DTYPES = {"bf16": "bfloat16", "tf32": "tf32"}


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

    @property
    def update(self) -> str:
        """What counts its updates: one by a single kernel is another thing."""
        return "fused updates" if "fused" in self.rungs else "updates"


class PlainlyRounded(Plainly):
    """The plain loop, also with random errors as large as a format's roundings; each is computed once."""

    def __init__(self, device: torch.device, steps: int, *, counting: bool = True) -> None:
        super().__init__(device, steps, counting=counting)
        self.losses = functools.cache(self._losses)

    def _losses(self, load: Load, sizes: tuple[int, ...], rung: str = "", seed: int = 0) -> tuple[float, float]:
        """The loss before and after the steps in float32; with a rung, with errors like its roundings."""
        with Roundings(rung, seed) if rung else nullcontext():
            return load.plain(self.device, sizes, self.steps, exactly=False).losses


def subject(
    combination: Combination, ctx: RankContext, plainly: PlainlyRounded, at: Setting, *, compared: bool = True
) -> Subject:
    """Every rank trains on its equal share of the batch, in parts of which batch normalisation sees one at a time.

    If it is not `compared`, nothing but float64 is: the memory is too small for the plain loop as it is timed.
    """
    load, rungs = at.load, combination.rungs
    model = in_layout(load.network(ctx.device), rungs)
    module = wrap(model, ctx) if ctx.world_size > 1 else model
    inputs, targets = load.shared(ctx.device, ctx.rank, ctx.world_size)
    each = rows(inputs) // combination.count
    parts = list(zip(chunks(inputs, each), chunks(targets, each), strict=True))
    step = TunedStep(model, module, parts, rungs, loss=load.loss, lr=load.lr)
    sizes = (each,) * combination.count
    whole = sizes * ctx.world_size
    made = trained(
        at,
        step,
        partial(state_of, model),
        plainly.at(load, whole),
        plainly=plainly,
        modules=[module],
        devices=[ctx],
        counts=_counts(combination, ctx, plainly, load, sizes, trainable(model)),
        agreeing=lambda: trainable(model) if ctx.world_size > 1 else (),
    )
    if not load.exact and (combination.rounding or not compared):
        still = partial(_still_trains, combination, ctx, plainly, load, step, model, whole)
        prove = still if compared else partial(_only_run, ctx, step)
        made = in_train_mode(replace(made, prove=prove), load, [module])
    return replace(made, prove=partial(_compiled, step, made.prove)) if step.compiled else made


def plain_loops(combination: Combination, plainly: PlainlyRounded, at: Setting) -> Subject:
    """All that such a step is compared with as it is timed, to see whether it fits; `plainly` keeps what it leaves."""
    each = at.load.batch_size // (at.devices * combination.count)
    sizes = (each,) * combination.count * at.devices

    def work() -> None:
        if combination.rounding:
            _losses(combination, plainly, at.load, sizes)
        else:
            plainly.at(at.load, sizes)()

    return Subject(work=work, prove=tuple)


def _counts(
    combination: Combination,
    ctx: RankContext,
    plainly: Plainly,
    load: Load,
    sizes: tuple[int, ...],
    parameters: Sequence[Tensor],
) -> dict[str, float]:
    """What compiled code and graphs compute is not seen."""
    counts: dict[str, float] = {combination.update: 1}
    if combination.seen:
        counts |= {"forwards": len(sizes), **({} if load.exact else plainly.counts(load, sizes))}
    if ctx.world_size > 1 and not load.exact:
        counts["all-reduced bytes"] = sum(parameter.nbytes for parameter in parameters)
    return counts


def _still_trains(
    combination: Combination,
    ctx: RankContext,
    plainly: PlainlyRounded,
    load: Load,
    step: TunedStep,
    model: nn.Module,
    sizes: tuple[int, ...],
) -> Iterator[Check]:
    """The loss of the whole batch after some steps, computed in float32, against that of plain loops."""
    rung = combination.rounding
    for _ in range(plainly.steps):
        step()
        ctx.synchronize()
    inputs, targets = load.batch(load.batch_size, ctx.device)
    ours = reference.loss_of(model, reference.split(inputs, targets, sizes), load.loss)
    plain, strayed = _losses(combination, plainly, load, sizes)
    name = f"{load.name}, {DTYPES[rung]}, after {plainly.steps} steps"
    yield from same_losses(name, DTYPES[rung], ours, plain, strayed)


def _losses(
    combination: Combination, plainly: PlainlyRounded, load: Load, sizes: tuple[int, ...]
) -> tuple[tuple[float, float], list[float]]:
    """Of the plain loop in float32 before and after the steps; after them, with random errors like the roundings."""
    strayed = [plainly.losses(load, sizes, combination.rounding, seed)[1] for seed in range(DRAWS)]
    return plainly.losses(load, sizes), strayed


def _only_run(ctx: RankContext, step: TunedStep) -> Iterator[Check]:
    """Once, so that it is known whether compiled code runs."""
    step()
    ctx.synchronize()
    yield from ()


def _compiled(step: TunedStep, prove: Callable[[], Iterable[Check]]) -> Iterator[Check]:
    """Besides, that graphs of torch.compile ran: it runs the plain code, and says nothing, where it gives up."""
    assert step.compiled, "one of its rungs"
    before, dtype = step.compiled.runs, step.parameters[0].dtype
    yield from prove()
    missing = float(step.compiled.runs == before)
    yield Check(
        name="steps in which no compiled code ran",
        dtype=str(dtype).removeprefix("torch."),
        difference=missing,
        tolerance=0.0,
    )
