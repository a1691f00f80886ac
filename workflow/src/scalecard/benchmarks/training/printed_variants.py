"""The tutorial's own code for model parallelism and its pipeline, proven and timed beside ours, at the same settings.

Source: PyTorch tutorial "Single-Machine Model Parallel Best Practices".
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from scalecard.benchmarks.training.cuts import TEXTBOOK
from scalecard.benchmarks.training.reference_cache import References, Setting
from scalecard.benchmarks.training.single_process import in_stages
from scalecard.benchmarks.training.strategy import trained
from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.parallel.as_printed import PrintedModel, PrintedStep
from scalecard.parallel.step import state_of
from scalecard.records.strategies import MODEL_PARALLEL, SINGLE
from scalecard.workloads.reference import trainable
from scalecard.workloads.workload import HOST

IN_PRINT = (SINGLE.name, MODEL_PARALLEL.name, "textbook")  # its network on one device, on two, and pipelined


def as_printed(
    variants: Sequence[Variant], devices: Sequence[Device], references: References, repeats: int = 1
) -> list[Variant]:
    """Those of the variants that the tutorial has, on one device or at its cut, by its own code: the same settings."""
    build = partial(_printed, devices, references, repeats)
    return [
        replace(each, name=f"{each.name}, as printed", build=build)
        for each in variants
        if each.case.get("strategy") in IN_PRINT and each.case.get("cut", TEXTBOOK) == TEXTBOOK
    ]


def _printed(devices: Sequence[Device], references: References, repeats: int, at: Setting) -> Subject:
    """`repeats` steps per call as the tutorial prints them, on one device or cut over several; each draws its batch."""
    workload, optimizer = at.workload, at.workload.optimizer_settings
    whole, stages = in_stages(workload, at.cuts, devices[0])
    used = devices[: len(stages)]
    model = PrintedModel(stages, [device.torch for device in used], at.split_size)
    values = trainable(whole)
    made, draw = optimizer.build(values), partial(workload.batch, workload.batch_size, HOST)
    step = partial(devices[0].submit, PrintedStep(model, draw, loss=workload.loss, optimizer=made))
    once: dict[str, float] = {"forwards": len(at.micro_sizes()), "samples": workload.batch_size}
    once |= optimizer.updates(values) | ({} if workload.exact else references.counts(workload, at.micro_sizes()))

    def work() -> None:
        for _ in range(repeats):
            step()

    proven = trained(
        at,
        step,
        partial(state_of, whole),
        references.at(workload, at.micro_sizes()),
        references=references,
        modules=stages,
        devices=used,
        counts={
            **{name: repeats * each for name, each in once.items()},
            "optimizer bytes": optimizer.state_bytes(values),
        },
        optimizers=[made],
    )
    return replace(proven, work=work)
