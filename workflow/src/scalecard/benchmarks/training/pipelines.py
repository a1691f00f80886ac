"""Pipelines over ResNet-50's stages, beside the single device and plain model parallelism: what is swept."""

import functools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from scalecard.benchmarks.training.cuts import resnet50, small_resnet50
from scalecard.benchmarks.training.reference_cache import References, Setting
from scalecard.benchmarks.training.single_process import IN_STAGES, OURS, TEXTBOOK, WHOLE, InProcess, subject
from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Variant
from scalecard.records.record import Case
from scalecard.records.strategies import MODEL_PARALLEL, SINGLE
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
