"""What does dividing each layer over devices bring, and what do its exchanges cost?

LeNet and ResNet-18 on one device, and with their layers divided over 2..N devices: by output channels (column), by
input channels (row), and by both in turn (pairs), at the same batch. The textbook names this way of splitting the
problem first, and calls its communication too much; here it is measured. Every device has its copy of the batch before
the clock starts.

The answer would be wrong if a divided network computed something else (every variant is proven against a plain loop in
float64 on up to four devices, in training mode, since batch norm sees the whole batch, and as it is timed), or if it
did not do all of its work (operations, updates, the bytes exchanged and the parameters on all devices are counted).
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import torch
from torch import Tensor

from scalecard import progress
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.failures import empty_cache
from scalecard.hardware.machine import Machine, device_counts, provable
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.counting import flops
from scalecard.measuring.interleaved_timing import time_rounds
from scalecard.measuring.memory import peak_memory
from scalecard.measuring.prepare import guarded
from scalecard.measuring.proof import Change, Precision, Trained, expected, same_replicas, training
from scalecard.measuring.spec import Common, EachOnce, Positive, Rate, Several
from scalecard.measuring.stopping_rule import in_equal_parts
from scalecard.parallel import plan_counts
from scalecard.parallel.tensor_parallel import OneDevice, TensorParallel
from scalecard.parallel.tensor_parallel_plans import PARTITIONS, plan
from scalecard.records.axes import Case
from scalecard.records.record import Record
from scalecard.records.strategies import SINGLE
from scalecard.workloads import reference
from scalecard.workloads.workload import HOST, built_in


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    models: Annotated[tuple[Literal["lenet", "resnet18"], ...], Several, EachOnce]
    batch_size: Positive
    lr: Rate
    check_batch_size: Positive
    check_steps: Positive


@dataclass(frozen=True)
class Setting(Precision):
    """Where a step is built: the model, how it is divided over how many devices, and the batch."""

    model: str
    partition: str
    devices: int
    batch_size: int

    @property
    def case(self) -> Case:
        of: Case = {"workload": self.model, "strategy": self.partition}
        return {**of, "devices": self.devices, "batch_size": self.batch_size}

    def __str__(self) -> str:
        return f"{self.model}, {self.partition}, on {progress.counted(self.devices, 'device')}"


Wanted = Callable[[str, int, bool], Trained | Change]


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Every model: time of a step by partition and number of devices, then peak memory."""
    with open_devices(machine, max(machine.num_devices, provable(machine))) as devices:
        wanted = functools.cache(partial(_expected, spec, devices[0]))
        for model in in_equal_parts(spec.models, label=lambda model: f"{model}, its layers divided"):
            yield from guarded(_model(spec, machine, devices, wanted, model), {"workload": model}, metric="step_time")
            empty_cache()


def _model(spec: Spec, machine: Machine, devices: Sequence[Device], wanted: Wanted, model: str) -> Iterator[Record]:
    build = partial(_subject, spec, devices, wanted)
    timed = [Setting(model, SINGLE.name, 1, spec.batch_size)]
    timed += [
        Setting(model, partition, count, spec.batch_size)
        for count in device_counts(machine.num_devices)[1:]
        for partition in PARTITIONS
    ]
    variants = [
        Variant(
            name=str(at),
            case=at.case,
            build=build,
            proven_at=_proven_at(spec, at, len(devices)),
            timed_at=at,
            devices=devices[: at.devices],
        )
        for at in timed
    ]
    timings = time_rounds(variants, devices=devices[: machine.num_devices], rule=spec.measure, energy=True)
    for timing in timings:
        yield timing.record("step_time")
    yield from peak_memory(timings, workload=model)
    if machine.num_devices == 1:
        for partition in PARTITIONS:
            case = Setting(model, partition, 2, spec.batch_size).case
            yield Record.skipped(case, "needs 2 devices, this machine has 1", metric="step_time")


def _proven_at(spec: Spec, at: Setting, available: int) -> list[Setting]:
    """In float64: one device alone, several also on two to four, where slices are uneven."""
    many = {2, 3, 4, at.devices} if at.devices > 1 else {1}
    return [
        Setting(at.model, at.partition, count, spec.check_batch_size, exact=True)
        for count in sorted(many)
        if count <= available
    ]


def _subject(spec: Spec, devices: Sequence[Device], wanted: Wanted, at: Setting) -> Subject:
    used, times = devices[: at.devices], spec.check_steps if at.exact else 1
    module = built_in(at.model, seed=spec.seed).network(HOST).to(at.dtype)
    batches = [_batch(spec, at.batch_size, device, at.dtype) for device in used]
    made: OneDevice | TensorParallel = OneDevice(used[0], module, lr=spec.lr)
    replicas: Sequence[Sequence[Tensor]] = []
    if at.partition != SINGLE.name:
        made = TensorParallel(used, module, plan(at.model, at.partition), lr=spec.lr)
        replicas = made.replicated
    return training(
        str(at),
        partial(made.step, batches),
        made.state,
        partial(wanted, at.model, at.batch_size, at.exact),
        times=times,
        steps=times,
        devices=used,
        counts=_counts(at, sum(parameter.numel() for parameter in module.parameters())),
        compared=made.whole,
        after=lambda: [same_replicas(replicas)] if any(replicas) else [],
    )


def _counts(at: Setting, num_values: int) -> dict[str, float]:
    """What one step must do: divided layers add up to the whole ones, replicated ones are there as often as devices."""
    _, whole = built_in(at.model, seed=0).without_data()
    flops_each, replicated, exchanged = 0.0, 0, 0
    if at.partition != SINGLE.name:
        counts = plan_counts.of(at.model, at.partition)
        flops_each, replicated = counts.replicated_flops, counts.replicated
        exchanged = plan_counts.bytes_exchanged(
            at.model, at.partition, num_devices=at.devices, batch_size=at.batch_size, itemsize=at.dtype.itemsize
        )
    return {
        "FLOPs": at.batch_size * (flops(whole) + (at.devices - 1) * flops_each),
        "received bytes": exchanged,
        "parameter bytes": at.dtype.itemsize * (num_values + (at.devices - 1) * replicated),
        "updates": 1,
    }


def _batch(spec: Spec, batch_size: int, device: Device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The same random images and labels on any device."""
    images, labels = built_in("lenet", seed=spec.seed).batch(batch_size, device.torch)
    return images.to(dtype), labels


def _expected(spec: Spec, first: Device, model: str, batch_size: int, exact: bool) -> Trained | Change:
    """The plain loop's steps on one device, in training mode in either precision."""
    images, labels = _batch(spec, batch_size, first, torch.float32)
    steps = [reference.split(images, labels, [batch_size])] * (spec.check_steps if exact else 1)
    workload = built_in(model, seed=spec.seed, lr=spec.lr)

    def plain(exactly: bool, nudge: float = 0.0, *, scored: bool = False) -> reference.Plain:
        return workload.trained(steps, first.torch, exact or exactly, nudge, scored=scored)

    return expected(model, plain, exact=exact)
