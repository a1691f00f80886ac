"""torch.distributed.pipelining, one stage per rank, and our pipelines in the same rounds, which the first rank drives.

Ours live in one process that submits to all devices. So while ours are timed, the other rank waits, and its device is
the first rank's: on GPUs two processes have memory there, but only one of them computes at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from scalecard.benchmarks.training import pipelines
from scalecard.benchmarks.training.cuts import AFTER_LAYER2, resnet50, small_resnet50
from scalecard.benchmarks.training.library_strategies import pipeline
from scalecard.benchmarks.training.reference_cache import References
from scalecard.benchmarks.training.single_process import OURS
from scalecard.distributed.context import RankContext
from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Variant
from scalecard.measuring.more_ranks import driven_by_the_first
from scalecard.records.record import Case
from scalecard.records.strategies import Schedule


def library(
    ctx: RankContext, spec: Any, schedule: str, sizes: Sequence[int], references: References
) -> Iterator[Variant]:
    """One of the library's schedules at split sizes that it can run; it needs equal micro-batches."""
    small = replace(small_resnet50(spec), batch_size=4)
    for size in sizes:
        yield Variant(
            name=f"torch {schedule}, split size {size}",
            case=library_case(spec, schedule, size),
            build=partial(pipeline, Schedule(schedule), ctx, references),
            proven_at=[pipelines.setting(small, AFTER_LAYER2, 1)],
            timed_at=pipelines.setting(resnet50(spec), AFTER_LAYER2, size),
        )


def ours(
    ctx: RankContext, spec: Any, schedule: str, sizes: Sequence[int], devices: list[Device], references: References
) -> Iterator[Variant]:
    """Ours by the same schedule. Ranks without the devices wait."""
    case: Case = {"image_size": spec.image_size, "beside": f"torch {schedule}"}
    for variant in pipelines.variants(spec, devices, schedule, OURS[schedule], AFTER_LAYER2, sizes, references, case):
        yield replace(variant, build=driven_by_the_first(ctx, variant.build), devices=())


def library_case(spec: Any, schedule: str, split_size: int) -> Case:
    """Of one of the library's schedules at a split size."""
    case: Case = {"strategy": f"torch {schedule}", "library": True, "split_size": split_size}
    return {**case, "batch_size": spec.batch_size, "image_size": spec.image_size}


def unsuited(batch_size: int, split_size: int, schedule: str) -> str:
    """Why the library cannot run this split size, or ''."""
    if batch_size % split_size:
        return f"the library needs equal micro-batches: {split_size} does not divide {batch_size}"
    if schedule == "1f1b" and batch_size // split_size < 2:
        return "the library's 1F1B needs at least as many micro-batches as stages"
    return ""
