"""What settings bring: those of the defaults that should be changed, and the rungs of tuning's ladder.

A change says what a setting takes over the time of another in the same rounds. A ladder is of one workload on one
number of devices: rungs alone, and on others. Its gains say how many times as many samples or tokens per second a step
trains as the ladder's plain step, which has no rung but the precision of the workload's recipe.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from scalecard.analysis import by_key, formatting
from scalecard.analysis.platforms import PlatformResults
from scalecard.analysis.step_records import APART, gain_per_unit, options_of, per_batch, rate
from scalecard.analysis.strategy_choice import on, strategy_runs, timed, workloads
from scalecard.records.axes import combination, rungs_of
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


def changes(measured: PlatformResults) -> list[Change]:
    """Everything that was measured beside a default, on the most devices."""
    readers = {"ddp": _of_ddp, "strategies": _of_strategies, "pipeline": _of_pipeline}
    return [change for name, read in readers.items() if (result := measured.of(name)) for change in read(result)]


def best(found: list[Change]) -> list[Change]:
    """Of each kind of setting of the same work, the fastest that surely pays."""
    paying = by_key(((change.what, change.family), change) for change in found if change.ratio.verdict == "faster")
    return [min(own, key=lambda change: change.ratio.value) for own in paying.values()]


def _of_ddp(result: Result) -> Iterator[Change]:
    for nodes, model in product(formatting.spans(result.select("step_time")), result.spec["models"]):
        options = options_of(result, model, nodes)
        default = options.get("default")
        for name, record in options.items():
            if default and name not in APART:
                other = ACCUMULATION if record.integer("steps", 1) > 1 else BUCKET_SIZE
                family, but = FAMILIES.get(name, other)
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
                family, what = "reshard_after_forward", f"{workload} by FSDP on {on(devices, nodes)}"
                ratio, but = run.time_over(default), "all parameters stay on every device"
                yield Change(what, family, f"{family}=False", f"{family}=True", ratio, but)


def _of_pipeline(result: Result) -> Iterator[Change]:
    """Micro-batches of every size instead of the tutorial's, of the fastest pipeline."""
    every = result.select("step_time", beside=None)
    runs = [r for r in every if r.case.get("split_size") not in (None, r.case["batch_size"])]
    fastest = min(runs, key=lambda record: record.median, default=None)
    others = {axis: value for axis, value in fastest.case.items() if axis != "split_size"} if fastest else {}
    by_size = {record.integer("split_size"): record for record in reversed(runs) if record.matches(**others)}
    default = by_size.pop(TUTORIALS_SPLIT, None)
    if fastest is None or default is None:
        return
    cut = f", cut {fastest.case['cut']}," if fastest.case.get("cut") else ""
    model, where = formatting.model_name(fastest.text("workload")), on(fastest.integer("devices", 2))
    what = f"{model} by {fastest.case['strategy']}{cut} on {where}"
    instead = f"the tutorial's {TUTORIALS_SPLIT}"
    for size, record in sorted(by_size.items()):
        yield Change(what, "split size", f"split size {size}", instead, record.over(default))


def is_larger(record: Record) -> bool:
    """Whether its step trains more samples than the plain one."""
    return not record.matches(accumulate=None, batch_factor=None)


@dataclass(frozen=True)
class Ladder:
    """The measured steps of one workload on so many devices, the plain one first."""

    workload: str
    devices: int
    base: Record
    records: tuple[Record, ...]

    @property
    def name(self) -> str:
        """Of the plain step: float32, or bf16."""
        return combination(self.base.case)

    def _further(self, record: Record) -> int:
        """The rungs that it has and the plain step has not."""
        return len(rungs_of(record.case)) - len(rungs_of(self.base.case))

    def gain(self, record: Record) -> Ratio:
        """How many times as fast as the plain step, per sample or token."""
        return gain_per_unit(record, self.base)

    def find(self, rungs: tuple[str, ...]) -> Record | None:
        """The step with exactly these rungs, at the plain step's batch."""
        usual = (record for record in (self.base, *self.records) if not is_larger(record))
        return next((record for record in usual if rungs_of(record.case) == rungs), None)

    @cached_property
    def alone(self) -> list[Record]:
        """The steps with one further rung, at the plain step's batch."""
        return [r for r in self.records if self._further(r) == 1 and not is_larger(r)]

    @cached_property
    def cumulative(self) -> list[Record]:
        """The first rung that worked, then each on those before it."""
        above = [r for r in self.records if self._further(r) > 1 and not is_larger(r)]
        first = self.find(rungs_of(above[0].case)[: 1 - self._further(above[0])]) if above else None
        return [*([first] if first else self.alone[:1]), *above]

    @cached_property
    def larger(self) -> list[Record]:
        """More batches per update, and larger batches."""
        return [record for record in self.records if is_larger(record)]

    def best(self, among: Callable[[Record], bool] = lambda record: not is_larger(record)) -> Record:
        """The fastest per sample or token; the plain step if none is faster."""
        return max(filter(among, [self.base, *self.records]), key=rate)


def ladders(result: Result) -> Iterator[Ladder]:
    """One of each workload and number of devices whose plain step was measured."""
    steps = result.select("step_time")
    by_place = by_key(((record.text("workload"), record.integer("devices")), record) for record in steps)
    for (workload, devices), every in by_place.items():
        fewest = min(len(rungs_of(record.case)) for record in every)
        plain = [r for r in every if len(rungs_of(r.case)) == fewest and not is_larger(r)]
        # Where the plain one was not measured, others have one rung each.
        if len(plain) == 1 and rungs_of(plain[0].case) in ((), ("bf16",)):
            yield Ladder(workload, devices, plain[0], tuple(r for r in every if r is not plain[0]))
