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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

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
from scalecard.measuring.prepare import guarded, too_few_devices
from scalecard.measuring.proof import Change, Precision, Trained, expected, same_replicas, training
from scalecard.measuring.spec import Common, Positive, Rate, Several
from scalecard.measuring.stopping_rule import in_equal_parts
from scalecard.parallel import tensor_parallel_plans
from scalecard.parallel.tensor_parallel import OneDevice, TensorParallel
from scalecard.parallel.tensor_parallel_plans import PARTITIONS, plan
from scalecard.records.axes import Case
from scalecard.records.record import Record
from scalecard.records.strategies import SINGLE
from scalecard.workloads import reference
from scalecard.workloads.workload import HOST, built_in


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    models: Several[Literal["lenet", "resnet18"]]
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


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Every model: time of a step by partition and number of devices, then peak memory."""
    with open_devices(machine, max(machine.num_devices, provable(machine))) as devices:
        steps = Steps(spec, devices)
        for model in in_equal_parts(spec.models, label=lambda model: f"{model}, its layers divided"):
            yield from guarded(steps.records(model, machine), {"workload": model}, metric="step_time")
            empty_cache()


class Steps:
    """Steps on the first of these devices, and what the plain loop does in them."""

    def __init__(self, spec: Spec, devices: Sequence[Device]) -> None:
        self.spec, self.devices, self.expected = spec, devices, functools.cache(self._expected)

    def records(self, model: str, machine: Machine) -> Iterator[Record]:
        """Of one model."""
        divided = partial(Setting, model, batch_size=self.spec.batch_size)
        build, counts = self._subject, device_counts(machine.num_devices)[1:]
        timed = [divided(SINGLE.name, 1), *(divided(name, count) for count in counts for name in PARTITIONS)]
        variants = [
            Variant(
                name=str(at),
                case=at.case,
                build=build,
                proven_at=self._proven_at(at),
                timed_at=at,
                devices=self.devices[: at.devices],
            )
            for at in timed
        ]
        used = self.devices[: machine.num_devices]
        timings = time_rounds(variants, devices=used, rule=self.spec.measure, energy=True)
        for timing in timings:
            yield timing.record("step_time")
        yield from peak_memory(timings, workload=model)
        for partition in PARTITIONS:
            yield from too_few_devices(divided(partition, 2).case, machine, metric="step_time")

    def _proven_at(self, at: Setting) -> list[Setting]:
        """In float64: one device alone, several also on two to four, where slices are uneven."""
        many = {2, 3, 4, at.devices} if at.devices > 1 else {1}
        small = partial(replace, at, batch_size=self.spec.check_batch_size, exact=True)
        return [small(devices=count) for count in sorted(many) if count <= len(self.devices)]

    def _subject(self, at: Setting) -> Subject:
        used, times = self.devices[: at.devices], self.spec.check_steps if at.exact else 1
        module = built_in(at.model, seed=self.spec.seed).network(HOST).to(at.dtype)
        batches = [_batch(self.spec, at.batch_size, device, at.dtype) for device in used]
        made: OneDevice | TensorParallel = OneDevice(used[0], module, lr=self.spec.lr)
        replicas: Sequence[Sequence[Tensor]] = []
        if at.partition != SINGLE.name:
            made = TensorParallel(used, module, plan(at.model, at.partition), lr=self.spec.lr)
            replicas = made.replicated
        return training(
            str(at),
            partial(made.step, batches),
            made.state,
            partial(self.expected, at.model, at.batch_size, at.exact),
            times=times,
            devices=used,
            counts=_counts(at, sum(parameter.numel() for parameter in module.parameters())),
            compared=made.whole,
            after=lambda: [same_replicas(replicas)] if any(replicas) else [],
        )

    def _expected(self, model: str, batch_size: int, exact: bool) -> Trained | Change:
        """The plain loop's steps on one device, in training mode in either precision."""
        images, labels = _batch(self.spec, batch_size, self.devices[0], torch.float32)
        steps = [reference.split(images, labels, [batch_size])] * (self.spec.check_steps if exact else 1)
        workload = built_in(model, seed=self.spec.seed, lr=self.spec.lr)

        def plain(exactly: bool, nudge: float = 0.0, *, scored: bool = False) -> reference.Plain:
            return workload.trained(steps, self.devices[0].torch, exact or exactly, nudge, scored=scored)

        return expected(model, plain, exact=exact)


def _counts(at: Setting, num_values: int) -> dict[str, float]:
    """What one step must do: divided layers add up to the whole ones, replicated ones are there as often as devices."""
    _, whole = built_in(at.model, seed=0).without_data()
    flops_each, replicated, exchanged = 0.0, 0, 0
    if at.partition != SINGLE.name:
        counts = tensor_parallel_plans.counts(at.model, at.partition)
        flops_each, replicated = counts.replicated_flops, counts.replicated
        exchanged = tensor_parallel_plans.bytes_exchanged(
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
