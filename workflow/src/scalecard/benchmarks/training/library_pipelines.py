"""torch.distributed.pipelining, one stage per rank, and our pipelines in the same rounds, which the first rank drives.

Ours live in one process that submits to all devices. So while ours are timed, the other rank waits, and its device is
the first rank's: on GPUs two processes have memory there, but only one of them computes at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn
from torch.nn import functional

from scalecard.benchmarks.training import pipelines
from scalecard.benchmarks.training.pipelines import Setting, flops_of
from scalecard.benchmarks.training.plain_steps import Plainly
from scalecard.distributed.context import RankContext
from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.more_ranks import driven_by_the_first
from scalecard.measuring.training_subject import training
from scalecard.parallel.resnet50 import Workload, bytes_handed_over, one_hot_images
from scalecard.parallel.torch_pipelining import LibraryPipeline, pipeline_group
from scalecard.records.record import Case


def library(ctx: RankContext, spec: Any, schedule: str, sizes: Sequence[int], plainly: Plainly) -> Iterator[Variant]:
    """One of the library's schedules at split sizes that it can run; it needs equal micro-batches."""
    load, small = Workload.of(spec), replace(Workload.of_check(spec), batch_size=4)
    build = partial(_subject, ctx, schedule, plainly, load.stage(ctx.rank))
    for size in sizes:
        case, at = library_case(spec, schedule, size), Setting(load, size)
        name = f"torch {schedule}, split size {size}"
        yield Variant(name=name, case=case, build=build, proven_at=[Setting(small, 1)], timed_at=at)


def ours(
    ctx: RankContext, spec: Any, schedule: str, sizes: Sequence[int], devices: list[Device], plainly: Plainly
) -> Iterator[Variant]:
    """Ours by the same schedule. Ranks without the devices wait."""
    (implementation,) = [one for one in pipelines.ours() if one.name == schedule]
    case: Case = {"image_size": spec.image_size, "beside": f"torch {schedule}"}
    for variant in pipelines.variants(spec, devices, implementation, Workload.of(spec), sizes, plainly, case):
        yield replace(variant, build=driven_by_the_first(ctx, variant.build), devices=())


def library_case(spec: Any, schedule: str, split_size: int) -> Case:
    """Of one of the library's schedules at a split size."""
    case: Case = {"implementation": f"torch {schedule}", "library": True, "split_size": split_size}
    return {**case, "batch_size": spec.batch_size, "image_size": spec.image_size}


def _subject(ctx: RankContext, schedule: str, plainly: Plainly, shared: nn.Module, setting: Setting) -> Subject:
    """This rank's stage; as timed, the split sizes share one module, whose state is put back."""
    load = setting.load
    module = load.stage(ctx.rank) if load.exact else shared
    pipeline = LibraryPipeline(
        {ctx.rank: module},
        load.num_stages,
        one_hot_images(load, ctx.device, ctx.device),
        schedule=schedule,
        num_micro=load.batch_size // setting.split_size,
        device=ctx.device,
        loss=functional.mse_loss,
        lr=load.lr,
        group=pipeline_group(ctx, load.num_stages),
    )
    counts = [[len(list(values)) for values in (s.parameters(), s.buffers())] for s in load.stages()]
    mine = [range(one, one + two) if ctx.rank else range(one) for one, two in zip(*counts, strict=True)]
    return training(
        f"torch {schedule}, {setting}",
        pipeline.step,
        pipeline.state,
        lambda: plainly.of(load, setting.sizes)().only(*mine),
        times=plainly.steps(load),
        steps=plainly.steps(load),
        devices=[ctx],
        counts={} if load.exact else _sent(ctx.rank, setting),
        module=module,
    )


def _sent(stage: int, setting: Setting) -> dict[str, float]:
    """What one step of one stage must do: each of the two sends as many bytes as it gets."""
    _, crossing = bytes_handed_over(setting.load)
    return {**setting.counts(), "FLOPs": flops_of(setting.load, stage), "sent bytes": crossing}


def unsuited(batch_size: int, split_size: int, schedule: str) -> str:
    """Why the library cannot run this split size, or ''."""
    if batch_size % split_size:
        return f"the library needs equal micro-batches: {split_size} does not divide {batch_size}"
    if schedule == "1f1b" and batch_size // split_size < 2:
        return "the library's 1F1B needs at least as many micro-batches as stages"
    return ""
