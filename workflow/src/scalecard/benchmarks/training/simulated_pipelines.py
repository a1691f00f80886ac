"""What a pipeline would take if launching and waiting cost nothing: its schedule, played with its stages' own times.

Of each stage the forwards of a batch are timed alone, then its forwards and backwards, and its update; where there is
something to copy, also the activations' way to the next stage. All in the pipelines' own rounds, at the size of their
micro-batches: each round is played by itself, so that drift of the machine does not come between what is played and
what is measured.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from scalecard.benchmarks.machine import copies
from scalecard.benchmarks.training.cut_model import CutWorkload, balanced_cuts, forwards, gradients, update
from scalecard.benchmarks.training.reference_cache import References, Setting
from scalecard.benchmarks.training.strategy import STEP, StrategyBuilder, in_train_mode
from scalecard.hardware.devices import Device
from scalecard.hardware.links import Link
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.parallel.schedules import SCHEDULES, Played, Schedule, gpipe, one_f_one_b, played
from scalecard.records.axes import Case
from scalecard.records.record import Record, Telemetry
from scalecard.records.strategies import MODEL_PARALLEL, OUR_1F1B, OUR_GPIPE, of
from scalecard.workloads.recipe import TEXTBOOKS, Recipe

FORWARD, BOTH, UPDATE, COPY = "forward", "forward and backward", "update", "copy to the next stage"
STAGE = "stage_time"
APART = "the devices' memory is too small to time all of its stages in the same rounds"
Parts = Sequence[Mapping[str, Record]]  # of each stage, by their names
FIRST = OUR_GPIPE  # with which the stages of all pipelines are tried
PIPELINES = {FIRST: gpipe, OUR_1F1B: one_f_one_b}
PLAYED = {MODEL_PARALLEL: gpipe, **PIPELINES}  # of one micro-batch, every schedule is plain model parallelism


def subject(part: str, stage: int, devices: Sequence[Device], num_micro: int, staged: CutWorkload) -> Subject:
    """One part of a stage, of so many micro-batches like the workload's batch; of a copy, of one."""
    if part == COPY:
        link = Link(devices[stage], devices[stage + 1])
        size = staged.crossing(stage, devices[stage].torch)
        return copies.subject_on_link(link, staged.workload.seed, size)
    if part == UPDATE:
        return update(staged.stage(stage), devices[stage], staged.workload.optimizer_settings)
    work = forwards if part == FORWARD else gradients
    return work(stage, devices[stage], staged, num_micro=num_micro)


def of_batches(stage: int, devices: Sequence[Device]) -> list[str]:
    """The parts that depend on the batch; CPU workers share their memory, so nothing is copied."""
    copied = stage < len(devices) - 1 and devices[stage].torch.type != "cpu"
    return [FORWARD, BOTH, *([COPY] if copied else [])]


def alone(
    staged: CutWorkload, check: CutWorkload, devices: Sequence[Device], sizes: Sequence[int], case: Case
) -> Iterator[Variant]:
    """What is played, at each of these split sizes, which divide the batch; proven in float64 with `check`."""
    used, whole = devices[: staged.num_stages], staged.workload.batch_size
    for stage in range(staged.num_stages):
        for part, size in [(UPDATE, whole), *((part, size) for size in sizes for part in of_batches(stage, used))]:
            own: Case = {"stage": stage, "batch_size": whole, **case}
            own |= {"part": part} if part == UPDATE else {"split_size": size, "part": part}
            yield Variant(
                name=" ".join(f"{axis} {value}" for axis, value in own.items()),
                case=own,
                build=partial(subject, part, stage, used, whole // size),
                proven_at=[check] if part in (FORWARD, BOTH) else [],
                timed_at=staged.of_size(size),
                metered=False,
            )


def records(found: Sequence[Record], staged: CutWorkload, sizes: Sequence[int], case: Case) -> Iterator[Record]:
    """`played_time` and `played_bubble` of every schedule at every split size."""
    for size in sizes:
        own: Case = {"split_size": size, "batch_size": staged.workload.batch_size, **case}
        parts = of_stages(found, staged.num_stages, own)
        for name, schedule in SCHEDULES.items():
            yield from play(schedule, parts, staged.workload.batch_size // size, {"strategy": name, **own})


def of_stages(found: Iterable[Record], num_stages: int, case: Case) -> Parts:
    """The parts of each stage among these records; an update does not depend on the split size, and has fewer axes."""
    parts: list[dict[str, Record]] = [{} for _ in range(num_stages)]
    for one in found:
        if one.metric == STAGE and {axis for axis, _ in one.case.items() - case.items()} == {"stage", "part"}:
            parts[one.integer("stage")][one.text("part")] = one
    return parts


def play(schedule: Schedule, parts: Parts, num_micro: int, case: Case) -> Iterator[Record]:
    """`played_time` and `played_bubble` (the share of it in which devices idle) of a schedule.

    One sample per round, from the times that the parts had in it.
    """
    every = [part for stage in parts for part in stage.values()]
    missing = next((part for part in every if part.status != "ok"), None)
    rounds = {part.telemetry[0].rounds_id for part in every if part.status == "ok"}
    if missing:
        yield replace(missing, case=case, metric="played_time")
    elif len(rounds) > 1:
        yield Record.skipped(case, APART, metric="played_time")
    else:
        one_by_one = [_round(schedule, parts, num_micro, number) for number in range(len(every[0].samples[0]))]
        computed = [Telemetry(rounds_id=rounds.pop(), no_joules="computed, not measured")]
        of = partial(Record, case=case, telemetry=computed)
        yield of(metric="played_time", unit="s", samples=[[one.makespan for one in one_by_one]])
        yield of(metric="played_bubble", unit="fraction", samples=[[one.bubble for one in one_by_one]])


def _round(schedule: Schedule, parts: Parts, num_micro: int, number: int) -> Played:
    """One round, played; a stage's backward is what its forwards and backwards take more than its forwards.

    A batch that is not cut goes to and fro without anything beside it, so the two together are enough.
    """

    def seconds(part: str) -> list[float]:
        return [stage[part].samples[0][number] if part in stage else 0.0 for stage in parts]

    both = [value / num_micro for value in seconds(BOTH)]
    forward = [value / num_micro for value in seconds(FORWARD)] if FORWARD in parts[0] else both
    backward = [max(0.0, b - f) for f, b in zip(forward, both, strict=True)]
    return played(schedule, forward, backward, seconds(COPY)[:-1], num_micro, seconds(UPDATE))


def parts(devices: Sequence[Device]) -> Iterator[StrategyBuilder]:
    """Each stage's update and, for micro-batches and for the whole batch, what depends on it.

    Of the whole batch, forward and backward are timed together only: nothing comes between them.
    """
    for kind in (FIRST, MODEL_PARALLEL):
        for stage in range(len(devices)):
            for part in (UPDATE, *of_batches(stage, devices)):
                if kind.schedule or part != FORWARD:
                    build = partial(_subject, part, stage, devices)
                    axes: Case = {"stage": stage, "part": part}
                    yield StrategyBuilder(kind, build, metric=STAGE, axes=axes, of_batch=part != UPDATE)


def _subject(part: str, stage: int, devices: Sequence[Device], references: References, at: Setting) -> Subject:
    cuts = balanced_cuts(at.workload, at.devices)
    staged = CutWorkload(at.workload, cuts, references.counting).of_size(at.split_size)
    made = subject(part, stage, devices, at.num_micro, staged)
    return in_train_mode(made, at.workload, [made.module] if made.module else [])


def schedules_played(found: Sequence[Record], recipe: Recipe = TEXTBOOKS) -> Iterator[Record]:
    """`played_time` and `played_bubble` of every such strategy, from its stages' times among these records.

    The case is that of its step time. If no strategy could cut the model, one record says why.
    """
    steps = [record for record in found if record.metric == STEP and of(record.case["strategy"]) in PLAYED]
    if steps and all(step.status != "ok" for step in steps):
        yield replace(steps[0], case={axis: steps[0].case[axis] for axis in ("workload", "devices")}, metric=STAGE)
    for step in (step for step in steps if step.status == "ok"):
        case: Case = {axis: value for axis, value in step.case.items() if axis not in ("strategy", "unit", "units")}
        kind = of(step.case["strategy"])
        # Of the pipelines' micro-batches, whose forwards were timed; 0 if they were not.
        forwards = (r for r in found if r.metric == STAGE and r.matches(part=FORWARD, **case))
        micro = next((one.integer("split_size") for one in forwards), 0)
        size = micro if kind in PIPELINES else step.integer("batch_size")
        alone = of_stages(found, step.integer("devices"), {**case, "split_size": size})
        if all(BOTH in stage for stage in alone):
            note = "without the clipping of gradients" if recipe.clip else ""
            for one in play(PLAYED[kind], alone, step.integer("batch_size") // size, step.case):
                yield replace(one, note=one.note or note)
        else:
            accumulates = recipe.accumulate > 1 and kind not in PIPELINES
            why = "it forwards one micro-batch after another" if accumulates else _why_not(steps, step.case)
            note = f"its stages were not timed alone: {why}"
            yield Record.skipped(step.case, note, metric="played_time")


def _why_not(steps: Sequence[Record], case: Case) -> str:
    """Why the strategy with which such stages are tried could not be used at this scaling, if that was it."""
    kind = FIRST if of(case["strategy"]) in PIPELINES else MODEL_PARALLEL
    tried = {"strategy": kind.name, "scaling": case["scaling"]}
    return next((step.why for step in steps if step.status != "ok" and step.matches(**tried)), "the time was over")
