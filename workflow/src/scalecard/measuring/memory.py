"""The peak of a GPU's memory in one call, and what a step uses it for.

That is parameters, gradients, optimizer states, activations, and the rest.

    forward            backward                update
    |------------------|-----------------------|--------|
    begin              activations             gradients, then what stays: parameters, states

Parameters (with buffers), gradients and states are the bytes of the tensors that are there. Activations are what the
allocator has given out at the end of the forward beyond what it had when the step began, without gradients and without
the parameters that FSDP2 has gathered by then. The rest is what the peak has beyond the sum of these: batches, buckets,
workspaces, gathered parameters, fragments. Gradients come while activations go, so the sum may be more than the peak,
and then there is no rest.

PyTorch itself says when a step gets there: every backward is begun by torch.autograd.backward, and optimizers have a
hook for all of them. So nothing is put on the object that is timed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from scalecard.measuring.case_variant import Subject, Timing, Variant, Work, local
from scalecard.measuring.counting import optimizer_states
from scalecard.measuring.prepare import guarded
from scalecard.records.axes import MemoryKind
from scalecard.records.record import Record

NO_PEAK = "CPU workers and ranks share the host's memory: there is no peak per device"

BLOCK = 512  # bytes; PyTorch's allocators give out multiples: kMinBlockSize in c10/core/AllocatorConfig.h


class MemoryByKind:
    """Looks at the memory of these devices while a subject takes one step.

    With `micro_batches` the forwards of a pipeline, of which some wait for their backward while others run, and the
    largest of all looks counts; otherwise the first forward's end, before there are gradients.
    """

    def __init__(self, subject: Subject, devices: Sequence[torch.device], *, micro_batches: bool = False) -> None:
        self.subject, self.devices, self.micro_batches = subject, devices, micro_batches
        self._own = set(_storages(subject.state()))
        self._begin = {device: torch.accelerator.memory_allocated(device) for device in devices}
        self._activations: dict[torch.device, float] = {}
        self._gradients: dict[torch.device, float] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at the step that is taken meanwhile."""
        before_update = register_optimizer_step_pre_hook(lambda *_: self._at_update())
        try:
            with _before_each_backward(self._at_backward):
                yield
        finally:
            before_update.remove()

    def _at_backward(self) -> None:
        if self._activations and not self.micro_batches:
            return
        state = list(self.subject.state())
        gathered = [tensor for key, tensor in _storages(state).items() if key not in self._own]
        for device in self.devices:
            taken = torch.accelerator.memory_allocated(device) - self._begin[device]
            apart = sum(in_blocks(each.untyped_storage().nbytes()) for each in gathered if each.device == device)
            held = taken - apart - bytes_on(device, _gradients(state))
            self._activations[device] = max(held, self._activations.get(device, 0))

    def _at_update(self) -> None:
        """Each stage of a model in this process has an update of its own, after which its gradients are gone."""
        gradients = _gradients(self.subject.state())
        for device in self.devices:
            self._gradients[device] = max(bytes_on(device, gradients), self._gradients.get(device, 0))

    def found(self, device: torch.device, peak: float) -> dict[MemoryKind, float]:
        """Bytes by kind on a device whose peak is given; of what the step was not seen to do there is none."""
        found: dict[MemoryKind, float] = {
            "parameters": bytes_on(device, self.subject.state()),
            "optimizer": bytes_on(device, optimizer_states(self.subject.optimizers)),
        }
        if device not in self._activations or device not in self._gradients:
            return found
        found |= {"gradients": self._gradients[device], "activations": self._activations[device]}
        return {**found, "rest": max(0.0, peak - sum(found.values()))}


@contextmanager
def _before_each_backward(look: Callable[[], None]) -> Iterator[None]:
    """Call `look` before every backward, by whichever thread, of ours or of a library."""
    plain = torch.autograd.backward

    def backward(*args: Any, **kwargs: Any) -> None:
        look()
        plain(*args, **kwargs)

    torch.autograd.backward = backward
    try:
        yield
    finally:
        torch.autograd.backward = plain


def bytes_on(device: torch.device, tensors: Iterable[Tensor]) -> float:
    """Of what this rank has there of these tensors; what is the same memory counts once."""
    here = (each for each in map(local, tensors) if each.device == device)
    return float(sum(size for _, size in {(each.data_ptr(), each.nbytes) for each in here}))


def _gradients(state: Iterable[Tensor]) -> list[Tensor]:
    return [tensor.grad for tensor in state if tensor.grad is not None]


def _storages(tensors: Iterable[Tensor]) -> dict[int, Tensor]:
    """A local tensor of each storage, by the storage's address."""
    return {each.untyped_storage().data_ptr(): each for each in map(local, tensors) if each.numel()}


def in_blocks(size: int) -> int:
    """What the allocator gives out for so many bytes."""
    return -(-size // BLOCK) * BLOCK


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
            yield Record.skipped({"workload": workload}, NO_PEAK, metric="peak_memory", unit="B")
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
