"""What the figures of a default run without GPUs have to show, as numbers: each textbook's figure has its shape."""

from collections.abc import Mapping

from scalecard.records.record import Result
from scalecard.records.strategies import MODEL_PARALLEL, SINGLE
from scalecard.report import sections

# At least so much of each, in the default run of two quiet cores.
DEFAULT = {
    "pipeline: split sizes of every schedule": 5,  # the library's 1F1B cannot run the whole batch
    "pipeline: split sizes of the textbook's, GPipe, 1F1B and the library's GPipe": 6,
    "pipeline: samples of a batch": 12,
    "pipeline: lines across, one device and model parallelism": 2,
    "dp_scratch: accuracy in the end, on one and two devices": 0.6,
    "dp_scratch: epochs": 5,
    "ddp: accuracy in the end, on one and two ranks": 0.6,
    "ddp: bucket sizes besides the default's": 2,
    "ddp: models": 2,
    "ddp: scalings of each model": 2,
    "dp_concise: batches and learning rates": 4,
    "dp_concise: epochs": 4,
    "dp_concise: images trained on": 1000,
    "dp_concise: images tested on": 500,
    "dp_concise: between the best and the worst curve": 0.05,
    "allreduce: sizes": 6,
    "copy_cost: sizes": 6,
    "async_timing: sizes": 6,
    "strategies: workloads": 2,
    "samples of every median that is followed from night to night": 12,
    "share of the time that was timed samples": 0.5,
}


def shapes(results: Mapping[str, Result]) -> dict[str, float]:
    """The numbers of DEFAULT, of results by experiment."""
    pipeline, scratch, ddp, concise = (results[name] for name in ("pipeline", "dp_scratch", "ddp", "dp_concise"))
    names = ("textbook", "gpipe", "1f1b", "torch gpipe", "torch 1f1b")
    splits = [_values(pipeline, "split_size", strategy=name, beside=None) for name in names]
    curves = [record.samples[0] for record in concise.select("accuracy", devices=1)]
    ends = sorted(curve[-1] for curve in curves)
    medians = [
        number.record.num_samples
        for name, result in results.items()
        for number in sections.load(name).nightly(result)
        if number.record.metric in ("time", "step_time") and name != "health"
    ]
    found = [
        min(splits),
        min(splits[:-1]),
        pipeline.spec["batch_size"],
        sum(pipeline.find("step_time", strategy=one.name) is not None for one in (SINGLE, MODEL_PARALLEL)),
        _accuracy(scratch),
        scratch.spec["epochs"],
        _accuracy(ddp),
        sum("bucket" in str(option) for option in {r.case.get("option") for r in ddp.select("step_time")}),
        _values(ddp, "workload"),
        min(_values(ddp, "scaling", workload=model, devices=2) for model in ddp.spec["models"]),
        len(curves),
        min(map(len, curves)),
        concise.spec["train_images"],
        concise.spec["test_images"],
        ends[-1] - ends[0],
        _values(results["allreduce"], "bytes", metric="time"),
        _values(results["copy_cost"], "bytes", metric="time"),
        _values(results["async_timing"], "size", metric="time"),
        _values(results["strategies"], "workload"),
        min(medians),
        sum(r.spent.get("timed", 0) for r in results.values()) / sum(r.seconds for r in results.values()),
    ]
    return dict(zip(DEFAULT, map(float, found), strict=True))


def _values(result: Result, axis: str, metric: str = "step_time", **case: str | int | None) -> int:
    """How many values of an axis were measured."""
    return len({record.case.get(axis) for record in result.select(metric, **case)} - {None})


def _accuracy(result: Result) -> float:
    """The smallest in the end, on one and on two devices; 0 if one was not trained."""
    ends = {record.integer("devices"): record.samples[0][-1] for record in result.select("accuracy")}
    return min(ends.get(devices, 0.0) for devices in (1, 2))
