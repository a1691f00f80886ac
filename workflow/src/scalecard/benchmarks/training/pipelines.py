"""Pipelines over ResNet-50's stages: ours, which the first rank drives, and the library's, one stage per rank.

torch.distributed.pipelining, one stage per rank, and our pipelines in the same rounds, which the first rank drives.

Ours live in one process that submits to all devices. So while ours are timed, the other rank waits, and its device is
the first rank's: on GPUs two processes have memory there, but only one of them computes at a time.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from scalecard.benchmarks.training.cuts import AFTER_LAYER2, resnet50, small_resnet50
from scalecard.benchmarks.training.multi_process import pipeline
from scalecard.benchmarks.training.reference_cache import References, Setting
from scalecard.benchmarks.training.single_process import IN_STAGES, OURS, TEXTBOOK, WHOLE, InProcess, subject
from scalecard.distributed.context import RankContext
from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Variant
from scalecard.measuring.more_ranks import driven_by_the_first
from scalecard.records.record import Case
from scalecard.records.strategies import MODEL_PARALLEL, SINGLE, Schedule
from scalecard.workloads.nested import sizes
from scalecard.workloads.stage_cuts import Cuts
from scalecard.workloads.workload import Workload

BETWEEN_LAYERS: dict[int, Cuts] = {2: (8,), 3: (4, 14), 4: (4, 8, 14)}  # for so many stages, to prove equality on
WHOLE_BATCHES = {SINGLE.name: WHOLE, MODEL_PARALLEL.name: IN_STAGES}  # what pipelines are compared with
PIPELINES = {"textbook": TEXTBOOK, **OURS}


def setting(workload: Workload, cuts: Cuts, split_size: int) -> Setting:
    """A batch in micro-batches of so many samples; the last one may have fewer."""
    return Setting(workload, len(cuts) + 1, len(sizes(workload.batch_size, split_size)), cuts, split_size)


def variants(
    spec: Any,
    devices: Sequence[Device],
    name: str,
    form: InProcess,
    cuts: Cuts,
    split_sizes: Sequence[int],
    references: References,
    case: Case,
    *,
    proven_stages: int = 0,
) -> Iterator[Variant]:
    """One way to train at each of its split sizes; as timed they share one model, whose state is put back.

    Equality is proven with the model cut as it is timed or, if it is split at all, between layers into
    `proven_stages`.
    """
    workload, small = resnet50(spec), small_resnet50(spec)
    shared = functools.cache(partial(form.model, devices))
    build = partial(subject, form, devices, references, shared=shared)
    for size in split_sizes:
        alike = max(1, round(size * small.batch_size / workload.batch_size))
        proven_cuts = BETWEEN_LAYERS[proven_stages] if proven_stages and size < workload.batch_size else cuts
        yield Variant(
            name=", ".join([name, f"split size {size}", *map(str, case.values())]),
            case={"strategy": name, "split_size": size, "batch_size": workload.batch_size, **case},
            build=build,
            proven_at=[setting(small, proven_cuts, alike)],
            timed_at=setting(workload, cuts, size),
            devices=devices[: len(cuts) + 1],
        )


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
            proven_at=[setting(small, AFTER_LAYER2, 1)],
            timed_at=setting(resnet50(spec), AFTER_LAYER2, size),
        )


def ours(
    ctx: RankContext, spec: Any, schedule: str, sizes: Sequence[int], devices: list[Device], references: References
) -> Iterator[Variant]:
    """Ours by the same schedule. Ranks without the devices wait."""
    case: Case = {"image_size": spec.image_size, "beside": f"torch {schedule}"}
    for variant in variants(spec, devices, schedule, OURS[schedule], AFTER_LAYER2, sizes, references, case):
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
