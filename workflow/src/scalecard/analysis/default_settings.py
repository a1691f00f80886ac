"""Which defaults to change: what each other setting takes, over the default's time in the same rounds."""

from collections.abc import Iterator
from dataclasses import dataclass

from scalecard.analysis import formatting
from scalecard.analysis.platforms import PlatformResults
from scalecard.analysis.step_records import APART, options_of, per_batch
from scalecard.analysis.strategy_choice import on, strategy_runs, timed, workloads
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Ratio
from scalecard.records.strategies import FSDP_GRADIENTS, FSDP_PARAMETERS

TUTORIALS_SPLIT = 20  # samples, what PyTorch's tutorial on model parallelism gives its pipeline
BUCKET_SIZE, ACCUMULATION = ("bucket size", ""), ("accumulation", "fewer updates, each of a larger batch")
FAMILIES = {  # of the other options of DDP: of which kind each is, and what else it changes
    "fp16 hook": ("hook", "gradients are rounded to float16"),
    "bf16 hook": ("hook", "gradients are rounded to bfloat16"),
    "gradient_as_bucket_view": ("gradient_as_bucket_view", ""),
    "static_graph": ("static_graph", "the graph must be the same in every step"),
}


@dataclass(frozen=True)
class Change:
    """A setting instead of another: its time, per batch, over the other's. `but` is what it changes besides."""

    what: str
    family: str
    setting: str
    instead: str
    ratio: Ratio
    but: str = ""

    @property
    def pays(self) -> bool:
        """Whether it is surely faster."""
        return self.ratio.verdict == "faster"


def changes(measured: PlatformResults) -> list[Change]:
    """Everything that was measured beside a default, on the most devices."""
    readers = {"ddp": _of_ddp, "strategies": _of_strategies, "pipeline": _of_pipeline}
    return [change for name, read in readers.items() if (result := measured.of(name)) for change in read(result)]


def best(found: list[Change]) -> list[Change]:
    """Of each kind of setting of the same work, the fastest that surely pays."""
    chosen: dict[tuple[str, str], Change] = {}
    for change in found:
        if change.pays:
            key = (change.what, change.family)
            chosen[key] = min(chosen.get(key, change), change, key=lambda one: one.ratio.value)
    return list(chosen.values())


def _of_ddp(result: Result) -> Iterator[Change]:
    for nodes in formatting.spans(result.select("step_time")):
        for model in result.spec["models"]:
            options = options_of(result, model, nodes)
            default = options.get("default")
            for name, record in options.items():
                if default and name not in APART:
                    accumulated = record.integer("steps", 1) > 1
                    family, but = FAMILIES.get(name, ACCUMULATION if accumulated else BUCKET_SIZE)
                    what = f"{model} by DDP on {on(record.integer('devices'), nodes or 1)}"
                    yield Change(what, family, name, "DDP's default", per_batch(record, default), but)


def _of_strategies(result: Result) -> Iterator[Change]:
    """FSDP that keeps what it gathered for the forward until the backward, which takes memory."""
    for workload in workloads(result):
        found = timed(strategy_runs(result, workload), "strong")
        able = {(run.strategy, run.devices, run.nodes): run for run in found}
        most = max((run.devices for run in found), default=0)
        for (name, devices, nodes), run in able.items():
            default = able.get((FSDP_PARAMETERS.name, devices, nodes))
            if name == FSDP_GRADIENTS.name and devices == most and default:
                yield Change(
                    f"{workload} by FSDP on {on(devices, nodes)}",
                    "reshard_after_forward",
                    "reshard_after_forward=False",
                    "reshard_after_forward=True",
                    run.time_over(default),
                    "all parameters stay on every device",
                )


def _of_pipeline(result: Result) -> Iterator[Change]:
    """Micro-batches of every size instead of the tutorial's, of the fastest pipeline."""
    every = result.select("step_time", beside=None)
    runs = [r for r in every if r.case.get("split_size") not in (None, r.case["batch_size"])]
    fastest = min(runs, key=lambda record: record.median, default=None)
    default = fastest and _with_split(runs, fastest, TUTORIALS_SPLIT)
    if fastest is None or default is None:
        return
    cut = f", cut {fastest.case['cut']}," if fastest.case.get("cut") else ""
    model, where = formatting.model_name(fastest.text("workload")), on(fastest.integer("devices", 2))
    what = f"{model} by {fastest.case['strategy']}{cut} on {where}"
    for size in sorted({record.integer("split_size") for record in runs} - {TUTORIALS_SPLIT}):
        if record := _with_split(runs, fastest, size):
            instead = f"the tutorial's {TUTORIALS_SPLIT}"
            yield Change(what, "split size", f"split size {size}", instead, record.over(default))


def _with_split(runs: list[Record], like: Record, size: int) -> Record | None:
    return next((r for r in runs if r.matches(**{**like.case, "split_size": size})), None)
