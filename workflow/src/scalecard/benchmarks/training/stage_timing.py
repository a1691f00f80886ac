"""The stages of a workload alone: what model parallelism and our pipelines would take, if only their stages took time.

They are timed in the same rounds as these strategies, at the size of their micro-batches. The schedules are then played
with these times (benchmarks/training/simulated_pipelines.py).
"""

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from scalecard.benchmarks.training.cut_model import cut, handed_over
from scalecard.benchmarks.training.reference_cache import Plainly, Setting
from scalecard.benchmarks.training.simulated_pipelines import (
    BOTH,
    FORWARD,
    STAGE,
    UPDATE,
    of_batches,
    of_stages,
    play,
    subject,
)
from scalecard.benchmarks.training.stages import given
from scalecard.benchmarks.training.strategy import STEP, StrategyBuilder, in_train_mode
from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Subject
from scalecard.parallel.model_parallel import Given
from scalecard.parallel.schedules import gpipe, one_f_one_b
from scalecard.records.record import Case, Record
from scalecard.records.strategies import MODEL_PARALLEL, OUR_1F1B, OUR_GPIPE, of
from scalecard.workloads.nested import mapped
from scalecard.workloads.workload import HOST, Load

FIRST = OUR_GPIPE  # with which the stages of all pipelines are tried
PIPELINES = {FIRST: gpipe, OUR_1F1B: one_f_one_b}
PLAYED = {MODEL_PARALLEL: gpipe, **PIPELINES}  # of one micro-batch, every schedule is plain model parallelism


@dataclass(frozen=True)
class Stages:
    """A workload in stages, with a batch like one micro-batch; the loss is the last stage's work.

    In a trial, nothing is `counting`.
    """

    load: Load
    num_stages: int
    counting: bool = True

    @property
    def batch_size(self) -> int:
        """Of one micro-batch."""
        return self.load.batch_size

    @property
    def lr(self) -> float:
        """Of the update."""
        return self.load.lr

    @property
    def seed(self) -> int:
        """Of what is copied."""
        return self.load.seed

    @property
    def exact(self) -> bool:
        """Whether it is in float64."""
        return self.load.exact

    @property
    def inexact(self) -> bool:
        """Whether it cannot be."""
        return self.load.inexact

    def of_size(self, batch_size: int) -> "Stages":
        """The same with another batch."""
        return replace(self, load=replace(self.load, batch_size=batch_size))

    def stage(self, index: int) -> nn.Module:
        """A copy of one of them; drawing the parameters takes longer."""
        return copy.deepcopy(_drawn(self.of_size(1).load, self.num_stages)[index])

    def given(self, device: torch.device) -> list[Given]:
        """What each gets, in the host's memory: the devices' is for what is measured."""
        value, targets = self.load.batch(self.batch_size, device)
        found = [mapped(partial(torch.Tensor.to, device=HOST), value)]
        for stage in range(self.num_stages - 1):
            with torch.no_grad():
                value = self.stage(stage).to(device)(value)
            found.append(value.to(HOST))
        *first, last = found
        return [*map(Given, first), Given(last, mapped(partial(torch.Tensor.to, device=HOST), targets), self.load.loss)]

    def plain_step(self, stage: int, device: torch.device) -> Callable[[], object] | None:
        """A forward and backward of one stage as it is timed."""
        if not self.counting:
            return None
        module, values = self.stage(stage).to(device).train(), given(self, device)[stage].to(device)
        if stage:
            values.inputs.requires_grad_()
        return lambda: values.through(module).sum().backward()

    def crossing(self) -> list[int]:
        """Bytes that each but the last hands over."""
        return [self.batch_size * each for each in handed_over(self.of_size(1).load, self.num_stages)]


@functools.lru_cache(maxsize=1)
def _drawn(load: Load, num_stages: int) -> list[nn.Module]:
    return cut(load, num_stages)[1]


def parts(devices: Sequence[Device]) -> Iterator[StrategyBuilder]:
    """Each stage's update and, for micro-batches and for the whole batch, what depends on it.

    Of the whole batch, forward and backward are timed together only: nothing comes between them.
    """
    for kind in (FIRST, MODEL_PARALLEL):
        for stage in range(len(devices)):
            for part in (UPDATE, *of_batches(stage, devices)):
                if kind.schedule or part != FORWARD:
                    yield StrategyBuilder(
                        kind,
                        partial(_subject, part, stage, devices),
                        metric=STAGE,
                        axes={"stage": stage, "part": part},
                        of_batch=part != UPDATE,
                    )


def _subject(part: str, stage: int, devices: Sequence[Device], plainly: Plainly, at: Setting) -> Subject:
    load = Stages(at.load, at.devices, plainly.counting).of_size(at.split_size)
    made = subject(part, stage, devices, at.num_micro, load)
    return in_train_mode(made, at.load, [made.module] if made.module else [])


def played(found: Sequence[Record]) -> Iterator[Record]:
    """`played_time` and `played_bubble` of every such strategy, from its stages' times among these records.

    The case is that of its step time. If no strategy could cut the model, one record says why.
    """
    steps = [record for record in found if record.metric == STEP and of(record.case["strategy"]) in PLAYED]
    if steps and all(step.status != "ok" for step in steps):
        yield replace(steps[0], case={axis: steps[0].case[axis] for axis in ("workload", "devices")}, metric=STAGE)
    for step in (step for step in steps if step.status == "ok"):
        case: Case = {axis: step.case[axis] for axis in ("workload", "devices", "scaling", "batch_size")}
        kind = of(step.case["strategy"])
        size = _split_size(found, case) if kind in PIPELINES else step.integer("batch_size")
        alone = of_stages(found, step.integer("devices"), {**case, "split_size": size})
        if all(BOTH in stage for stage in alone):
            num_micro = step.integer("batch_size") // size
            yield from play(PLAYED[kind], alone, num_micro, step.case)
        else:
            note = f"its stages were not timed alone: {_why_not(steps, step.case)}"
            yield Record.skipped(step.case, note, metric="played_time")


def _why_not(steps: Sequence[Record], case: Case) -> str:
    """Why the strategy with which such stages are tried could not be used at this scaling, if that was it."""
    kind = FIRST if of(case["strategy"]) in PIPELINES else MODEL_PARALLEL
    tried = {"strategy": kind.name, "scaling": case["scaling"]}
    return next((step.why for step in steps if step.status != "ok" and step.matches(**tried)), "the time was over")


def _split_size(found: Sequence[Record], case: Case) -> int:
    """Of the pipelines' micro-batches, whose forwards were timed; 0 if they were not."""
    sizes = (r.integer("split_size") for r in found if r.metric == STAGE and r.matches(part=FORWARD, **case))
    return next(sizes, 0)
