"""The textbooks' ResNet-50, and where it is cut: as they do, and such that the slowest stage is as fast as possible.

On machines without GPUs a ResNet-26 of a quarter of the width takes its place: fewer of the same blocks, narrower.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Literal

from scalecard import progress
from scalecard.benchmarks.training.cut_model import CutWorkload, given, gradients
from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Timing, Variant
from scalecard.measuring.interleaved_timing import time_rounds
from scalecard.measuring.shared_decisions import decided
from scalecard.measuring.spec import Common, Positive, Rate
from scalecard.measuring.stopping_rule import Rule
from scalecard.records.axes import Case
from scalecard.records.record import Record
from scalecard.records.statistics import FEWEST
from scalecard.workloads.stage_cuts import Cuts, balanced, stages
from scalecard.workloads.workload import Workload, built_in

Model = Literal["resnet50", "resnet26_quarter"]
# In each layer.
BOTTLENECKS: Mapping[str, tuple[int, ...]] = {"resnet50": (3, 4, 6, 3), "resnet26_quarter": (2, 2, 2, 2)}
TEXTBOOK, BALANCED = "after layer2", "balanced"  # cuts


def num_blocks(model: str) -> int:
    """Its stem, the bottlenecks, and its head."""
    return sum(BOTTLENECKS[model]) + 2


def after(model: str, *layers: int) -> Cuts:
    """Cuts after these layers, counted from 1; block 0, the stem, comes before the first."""
    return tuple(sum(BOTTLENECKS[model][:layer]) + 1 for layer in layers)


@dataclass(frozen=True, kw_only=True)
class OfResNet50(Common):
    """The values of experiments that cut it; of its small batch, with which equality is proven, too."""

    model: Model
    batch_size: Positive
    image_size: Positive
    num_classes: Positive
    lr: Rate
    check_batch_size: Positive
    check_image_size: Positive
    check_steps: Positive


def resnet50(spec: OfResNet50, *, exact: bool = False) -> Workload:
    """Random images and one-hot vectors, whose mean squared error is the loss; `exact`: few and small, in float64."""
    size, image_size = spec.batch_size, spec.image_size
    if exact:
        size, image_size = spec.check_batch_size, spec.check_image_size
    values = {"image_size": image_size, "num_classes": spec.num_classes, "one_hot": True}
    return built_in(spec.model, seed=spec.seed, lr=spec.lr, exact=exact, batch_size=size, **values)


def time_blocks(workload: Workload, device: Device, rule: Rule, case: Case, *, num_micro: int = 1) -> list[Timing]:
    """Forward and backward of a batch of micro-batches in every block.

    In the fewest rounds that have an interval, and proven as timed only: where to cut asks for no more. The stages
    that are cut there are proven in float64 too.
    """
    count = num_blocks(workload.name)
    every = tuple(range(1, count))
    variants = [
        Variant(
            name=f"block {block}",
            case={**case, "block": block},
            build=partial(gradients, block, device, num_micro=num_micro),
            timed_at=CutWorkload(workload, every),
        )
        for block in range(count)
    ]
    rounds = min(rule.min_rounds, FEWEST)
    short = replace(rule, min_rounds=rounds, max_rounds=rounds)
    progress.doing(f"each of {count} blocks alone, to find where to cut")
    timings = time_rounds(variants, devices=[device], rule=short)
    given.cache_clear()
    return timings


def chosen_cuts(model: str, blocks: Callable[[], Sequence[Timing]], counts: Sequence[int]) -> list[tuple[str, Cuts]]:
    """The textbook's cut for two devices, then the balanced one for each of these numbers of devices, if it is known.

    That is the one whose slowest stage is fastest. It is found by the times of the blocks in the run's first process:
    they scatter, and processes that cut elsewhere would not measure the same case.
    """
    if not counts:
        return []

    def decide() -> list[Cuts]:
        timings = blocks()
        if not all(timing.completion for timing in timings):  # out of memory, or of time
            return []
        times = [median(timing.completion) for timing in timings]
        return [balanced(times, count) for count in counts if count <= len(times)]

    return [(TEXTBOOK, after(model, 2)), *((BALANCED, tuple(cuts)) for cuts in decided("cuts", decide))]


def not_cut(model: str, blocks: Sequence[Timing], counts: Sequence[int], case: Case) -> Iterator[Record]:
    """What could not be balanced, and why: a block without a time, or fewer blocks than devices."""
    missing = next((timing.record("step_time") for timing in blocks if not timing.completion), None)
    for count in counts:
        own: Case = {**case, "devices": count, "cut": BALANCED}
        if missing:
            yield replace(missing, case=own, note=f"a block has no time: {missing.note}")
        elif count > num_blocks(model):
            yield Record.skipped(own, f"{num_blocks(model)} blocks do not make {count} stages", metric="step_time")


def with_blocks(record: Record, cuts: Cuts) -> Record:
    """A record of a cut model, with the number of blocks of each stage."""
    return replace(record, blocks=[len(span) for span in stages(num_blocks(record.text("workload")), cuts)])
