"""What the figures of a default run without GPUs have to show, as numbers: each textbook's figure has its shape."""

from collections.abc import Callable, Mapping

from scalecard.records.record import Result
from scalecard.records.strategies import MODEL_PARALLEL, OTHER_RECIPE, SINGLE
from scalecard.report import sections
from scalecard.time_spent import Activity

OTHER_TIME = OTHER_RECIPE["step_time"]
Results = Mapping[str, Result]  # by experiment
SCHEDULES = ("textbook", "gpipe", "1f1b", "torch gpipe")
LIBRARYS_1F1B = "torch 1f1b"  # which cannot run the whole batch


def _values(result: Result, axis: str, metric: str = "step_time", **case: str | int | None) -> int:
    """How many values of an axis were measured."""
    return len({record.case.get(axis) for record in result.select(metric, **case)} - {None})


def _splits(results: Results, *names: str) -> int:
    pipeline = results["pipeline"]
    return min(_values(pipeline, "split_size", strategy=name, beside=None) for name in names)


def _accuracy(result: Result) -> float:
    """The smallest in the end, on one and on two devices; 0 if one was not trained."""
    ends = {record.integer("devices"): record.samples[0][-1] for record in result.select("accuracy")}
    return min(ends.get(devices, 0.0) for devices in (1, 2))


def _buckets(result: Result) -> int:
    """Of those in the settings; the default's is among them."""
    measured = {record.case.get("option") for record in result.select("step_time")}
    wanted = ["default" if size is None else f"bucket {size} MiB" for size in result.spec["buckets_mib"]]
    return sum(name in measured for name in wanted)


def _curves(results: Results) -> list[list[float]]:
    return [record.samples[0] for record in results["dp_concise"].select("accuracy", devices=1, start=None)]


def _spread(results: Results) -> float:
    ends = [curve[-1] for curve in _curves(results)]
    return max(ends) - min(ends)


def _samples(results: Results) -> int:
    """The fewest of a median that is followed from night to night; health takes a look at everything and no more."""
    followed = [n for name in {*results} - {"health"} for n in sections.load(name).nightly(results[name])]
    return min(number.record.num_samples for number in followed if number.record.metric in ("time", "step_time"))


def _timed(results: Results) -> float:
    every = results.values()
    return sum(one.spent.get(Activity.TIMED, 0.0) for one in every) / sum(one.seconds for one in every)


def _lines(results: Results) -> int:
    pipeline = results["pipeline"]
    return sum(pipeline.find("step_time", strategy=one.name) is not None for one in (SINGLE, MODEL_PARALLEL))


def _scalings(results: Results) -> int:
    ddp = results["ddp"]
    return min(_values(ddp, "scaling", workload=model, devices=2) for model in ddp.spec["models"])


# What it is, how it is found, and how much of it the default run shows at least, on two quiet cores.
SHAPES: list[tuple[str, Callable[[Results], float], float]] = [
    ("pipeline: split sizes of each schedule", lambda r: _splits(r, *SCHEDULES), 6),
    ("pipeline: split sizes of the library's 1F1B", lambda r: _splits(r, LIBRARYS_1F1B), 5),
    ("pipeline: samples of a batch", lambda r: r["pipeline"].spec["batch_size"], 12),
    ("pipeline: lines across, one device and model parallelism", _lines, 2),
    ("dp_scratch: accuracy in the end, on one and two devices", lambda r: _accuracy(r["dp_scratch"]), 0.6),
    ("dp_scratch: epochs", lambda r: r["dp_scratch"].spec["epochs"], 5),
    ("ddp: accuracy in the end, on one and two ranks", lambda r: _accuracy(r["ddp"]), 0.6),
    ("ddp: bucket sizes", lambda r: _buckets(r["ddp"]), 3),
    ("ddp: models", lambda r: _values(r["ddp"], "workload"), 2),
    ("ddp: scalings of each model", _scalings, 2),
    ("dp_concise: batches and learning rates", lambda r: len(_curves(r)), 4),
    ("dp_concise: epochs", lambda r: min(map(len, _curves(r))), 4),
    ("dp_concise: images trained on", lambda r: r["dp_concise"].spec["train_images"], 1000),
    ("dp_concise: images tested on", lambda r: r["dp_concise"].spec["test_images"], 500),
    ("dp_concise: accuracy between the best and the worst", _spread, 0.05),
    ("allreduce: sizes", lambda r: _values(r["allreduce"], "bytes", "time", algorithm="torch.distributed"), 6),
    ("copy_cost: sizes", lambda r: len(r["copy_cost"].spec["bytes"]), 6),
    ("async_timing: sizes", lambda r: len(r["async_timing"].spec["sizes"]), 6),
    ("strategies: workloads", lambda r: _values(r["strategies"], "workload"), 2),
    ("strategies: strategies by other recipes", lambda r: _values(r["strategies"], "strategy", OTHER_TIME), 7),
    ("samples of every median that is followed from night to night", _samples, 12),
    ("share of the time that was timed samples", _timed, 0.5),
]
