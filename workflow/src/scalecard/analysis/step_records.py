"""Records of training steps: of one device alone, what was counted of a step, what options of DDP bring, and errors."""

import math
from collections.abc import Sequence
from dataclasses import replace

from scalecard.analysis import formatting
from scalecard.records.axes import BASELINE, DTYPES, MEMORY, Case, MemoryKind, rungs_of
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Ratio
from scalecard.records.strategies import DDP, OTHER_RECIPE, SINGLE

ONE = {"samples": "sample", "tokens": "token"}  # of what a workload counts
APART = ("default", "no_sync", "all-reduce alone")  # these take DDP's step apart; they are not options


def place(step: Record) -> Case:
    """The axes of a step, for what was measured beside it: on as many nodes, and by the same recipe."""
    return {"nodes": None, "precision": None, "checkpointing": None, **step.case}


def memory(result: Result, step: Record) -> Record | None:
    """Of the fullest device in a step, by whichever recipe; there is none without GPUs."""
    return _beside(result, step, "peak_memory", place(step))


def memory_by_kind(result: Result, step: Record) -> tuple[dict[MemoryKind, Record], dict[MemoryKind, Record]]:
    """What that device's memory is used for, measured and predicted, as far as each is known."""

    def known(metric: str) -> dict[MemoryKind, Record]:
        found = {kind: _beside(result, step, metric, {**place(step), "kind": kind}) for kind in MEMORY}
        return {kind: record for kind, record in found.items() if record and record.samples}

    return known("memory_by_kind"), known("predicted_memory")


def largest_batch(result: Result, step: Record) -> Record | None:
    """Samples on each device with the step's strategy and recipe; the same however many are timed."""
    axes = ("workload", "strategy", "devices", "nodes", "precision", "checkpointing")
    return _beside(result, step, "largest_batch", {axis: step.case.get(axis) for axis in axes})


def _beside(result: Result, step: Record, metric: str, case: Case) -> Record | None:
    other = step.metric == OTHER_RECIPE["step_time"]
    return result.find(OTHER_RECIPE.get(metric, metric) if other else metric, **case)


def single(result: Result, workload: str) -> Record | None:
    """One device alone."""
    return result.find("step_time", workload=workload, strategy=SINGLE.name)


def scaling_of_ddp(ddp: Result) -> list[Record]:
    """The steps of `ddp` that scale, with the axes of `strategies`: the device that trains without DDP, and DDP.

    Options, and what one process does, have rounds of their own.
    """
    found = list[Record]()
    for step in ddp.records:
        if step.metric == "step_time" and not step.case.keys() & {"option", "strategy"}:
            strategy = SINGLE if step.case.get("scaling") == "plain" else DDP
            case = {**step.case, "strategy": strategy.name, "unit": "samples", "units": step.case.get("batch_size")}
            found.append(replace(step, case=case))
    return found


def repeated(results: Sequence[Result]) -> dict[str, dict[str, Record]]:
    """Of each workload its plain step on one device, at the batch of `strategies`, by the experiments that timed it."""
    by_name = {result.experiment: result for result in results}
    found = dict[str, dict[str, Record]]()
    for alone in by_name["strategies"].select("step_time", strategy=SINGLE.name) if "strategies" in by_name else ():
        case: Case = {axis: alone.case.get(axis) for axis in ("workload", "batch_size")}
        own = {"strategies": alone}
        if resident := (loading := by_name.get("input")) and loading.find("step_time", **case, data="resident"):
            own["input"] = resident
        plain = () if dtype_of(alone) == BASELINE else ("bf16",)
        tuned = by_name["tuning"].select("step_time", **case, devices=1) if "tuning" in by_name else []
        own |= [("tuning", r) for r in tuned if rungs_of(r.case) == plain and r.matches(accumulate=None)]
        found[alone.text("workload")] = own
    return {workload: own for workload, own in found.items() if len(own) > 1}


def counted(record: Record, name: str) -> float | None:
    """What one call was counted to do."""
    return next((count.counted for count in record.work if count.name == name), None)


def operations_each(result: Result, workload: str) -> float:
    """The operations that the model needs per sample or token; 0 if they were not counted.

    Those counted without data or, in older results, of one device's step.
    """
    without_data, alone = result.find("model_operations", workload=workload), single(result, workload)
    if without_data and without_data.samples:
        return without_data.median / without_data.integer("units")
    if alone and (flops := counted(alone, "FLOPs")):
        return (flops - (counted(alone, "recomputed FLOPs") or 0.0)) / alone.integer("units")
    return 0.0


def recomputed_share(alone: Record) -> float:
    """Of one device's step, the share of its operations that it does again in the backward."""
    flops = counted(alone, "FLOPs")
    return (counted(alone, "recomputed FLOPs") or 0.0) / flops if flops else 0.0


def options_of(result: Result, model: str, nodes: int | None) -> dict[str, Record]:
    """A step with each option of DDP, by its name, and what takes the step apart."""
    records = result.select("step_time", workload=model, nodes=nodes)
    return {record.text("option"): record for record in records if "option" in record.case}


def per_batch(record: Record, default: Record) -> Ratio:
    """An option's time over the default's; accumulating ones take a step every so many batches."""
    return formatting.scaled(record.over(default), 1 / record.integer("steps", 1))


def time_per_unit(new: Record, old: Record) -> Ratio:
    """The time of a sample or token by one step or loader over that by another, whatever their batches."""
    return formatting.scaled(new.over(old), old.integer("units") / new.integer("units"))


def gain_per_unit(new: Record, old: Record) -> Ratio:
    """How many times as many samples or tokens per second."""
    return formatting.scaled(formatting.speedup(new, old), new.integer("units") / old.integer("units"))


def dtype_of(record: Record) -> str:
    """In which its products and convolutions are computed, by its recipe or its rungs."""
    named = {*record.case, record.text("precision", BASELINE)}
    return next((dtype for name, dtype in DTYPES.items() if name in named), BASELINE)


def rate(record: Record) -> float:
    """Samples or tokens per second."""
    return record.integer("units") / record.median


def half_width(record: Record, times: float = 1) -> float | None:
    """Half of its 95 % interval, so many times."""
    return times * record.interval.half_width if record.interval else None


def in_quadrature(*errors: float | None) -> float | None:
    """Independent errors add in quadrature."""
    known = [error for error in errors if error is not None]
    return math.hypot(*known) if len(known) == len(errors) else None


def error_of_difference(a: Record, b: Record) -> float | None:
    """The error of a - b: of the differences in each round if both share their rounds, which cancels drift."""
    ours, theirs = ([entry.rounds_id for entry in record.telemetry] for record in (a, b))
    if not ours or ours != theirs or list(map(len, a.samples)) != list(map(len, b.samples)):
        return in_quadrature(half_width(a), half_width(b))
    rounds = [[x - y for x, y in zip(xs, ys, strict=True)] for xs, ys in zip(a.samples, b.samples, strict=True)]
    return half_width(Record(case={}, metric=a.metric, unit=a.unit, samples=rounds))
