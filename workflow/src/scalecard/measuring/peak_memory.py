"""The peak of each device's memory in one call."""

from collections.abc import Iterable, Iterator

import torch

from scalecard.measuring.case_variant import Timing, Variant, Work
from scalecard.measuring.failures import guarded
from scalecard.records.record import Record


def peak_memory(timings: Iterable[Timing], *, workload: str) -> Iterator[Record]:
    """One record per variant and device: the most bytes one call needs there beyond what was allocated before it.

    Parameters and inputs are allocated before; activations, gradients and buffers are not. Variants without devices are
    left out. On CPUs there is a single skipped record, for the model.
    """
    for timing in timings:
        variant = timing.variant
        if not variant.devices or not timing.prepared:
            continue
        if variant.devices[0].torch.type == "cpu":
            note = "CPU workers share the host's memory: there is no peak per device"
            yield Record.skipped({"workload": workload}, note, metric="peak_memory", unit="B")
            return
        yield from guarded(_peaks(variant, timing.prepared.subject.work), variant.case, metric="peak_memory", unit="B")


def _peaks(variant: Variant, work: Work) -> Iterator[Record]:
    used = {device.index: device for device in variant.devices}.values()
    before = {}
    for device in used:
        device.synchronize()
        before[device.index] = torch.accelerator.memory_allocated(device.torch)
        torch.accelerator.reset_peak_memory_stats(device.torch)
    work()
    for device in used:
        device.synchronize()
        peak = float(torch.accelerator.max_memory_allocated(device.torch) - before[device.index])
        case = {**variant.case, "device": device.index}
        yield Record(case=case, metric="peak_memory", unit="B", samples=[[peak]])
