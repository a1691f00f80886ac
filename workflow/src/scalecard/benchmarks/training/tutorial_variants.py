"""The tutorial's own code for model parallelism and its pipeline, proven and timed beside ours, at the same settings.

Source: PyTorch tutorial "Single-Machine Model Parallel Best Practices".
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from scalecard.benchmarks.training.cuts import TEXTBOOK
from scalecard.benchmarks.training.reference_cache import References, Setting
from scalecard.benchmarks.training.single_process import in_stages, repeated
from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.parallel.tutorial_pipeline import TutorialModel, TutorialStep
from scalecard.records.strategies import MODEL_PARALLEL, SINGLE
from scalecard.workloads.reference import trainable
from scalecard.workloads.workload import HOST

COMPARED = (SINGLE.name, MODEL_PARALLEL.name, "textbook")  # its network on one device, on two, and pipelined


def tutorial_variants(
    variants: Sequence[Variant], devices: Sequence[Device], references: References, repeats: int = 1
) -> list[Variant]:
    """Those of the variants that the tutorial has, on one device or at its cut, by its own code: the same settings."""
    build = partial(_tutorial, devices, references, repeats)
    return [
        replace(each, name=f"{each.name}, as printed", build=build)
        for each in variants
        if each.case.get("strategy") in COMPARED and each.case.get("cut", TEXTBOOK) == TEXTBOOK
    ]


def _tutorial(devices: Sequence[Device], references: References, repeats: int, at: Setting) -> Subject:
    """`repeats` steps per call as the tutorial prints them, on one device or cut over several; each draws its batch."""
    workload, optimizer = at.workload, at.workload.optimizer_settings
    whole, stages = in_stages(workload, at.cuts, devices[0])
    used = devices[: len(stages)]
    model = TutorialModel(stages, [device.torch for device in used], at.split_size)
    made, draw = optimizer.build(trainable(whole)), partial(workload.batch, workload.batch_size, HOST)
    step = partial(devices[0].submit, TutorialStep(model, draw, loss=workload.loss, optimizer=made))
    counts: dict[str, float] = {"forwards": len(at.micro_sizes()), "samples": workload.batch_size}
    counts |= {} if workload.exact else references.counts(workload, at.micro_sizes())
    return repeated(at, step, whole, stages, used, references, counts, [made], repeats)
