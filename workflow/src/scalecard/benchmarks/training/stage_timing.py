"""The stages of a workload alone: what model parallelism and our pipelines would take, if only their stages took time.

They are timed in the same rounds as these strategies, at the size of their micro-batches. The schedules are then played
with these times (benchmarks/training/simulated_pipelines.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from scalecard.benchmarks.training.cut_model import CutWorkload, cuts_at
from scalecard.benchmarks.training.reference_cache import References, Setting
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
from scalecard.benchmarks.training.strategy import STEP, StrategyBuilder, in_train_mode
from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Subject
from scalecard.parallel.schedules import gpipe, one_f_one_b
from scalecard.records.record import Case, Record
from scalecard.records.strategies import MODEL_PARALLEL, OUR_1F1B, OUR_GPIPE, of

FIRST = OUR_GPIPE  # with which the stages of all pipelines are tried
PIPELINES = {FIRST: gpipe, OUR_1F1B: one_f_one_b}
PLAYED = {MODEL_PARALLEL: gpipe, **PIPELINES}  # of one micro-batch, every schedule is plain model parallelism


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


def _subject(part: str, stage: int, devices: Sequence[Device], references: References, at: Setting) -> Subject:
    staged = CutWorkload(at.workload, cuts_at(at, at.devices), references.counting).of_size(at.split_size)
    made = subject(part, stage, devices, at.num_micro, staged)
    return in_train_mode(made, at.workload, [made.module] if made.module else [])


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
