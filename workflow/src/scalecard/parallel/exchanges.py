"""Exchanges between the devices of one process: all-gather and all-reduce of activations and of their gradients.

A tensor of the whole computation is, at every point, in one of three layouts over n devices:

    whole     each device has the same tensor
    slices    device d has a slice of dimension 1, the channels (torch.tensor_split: slices may differ by one)
    partial   each device has a summand of the tensor

An exchange turns one layout into another, and in the backward turns the gradient's layout back: each is the other's
adjoint. A gradient is partial where a whole tensor went into layers of which each device computed its part.

    exchange   forward                         backward                        bytes forward, backward
    COPY       whole: nothing                  partial -> whole: all-reduce    0, 2 (n - 1) A
    REDUCE     partial -> whole: all-reduce    whole: nothing                  2 (n - 1) A, 0
    GATHER     slices -> whole: all-gather     whole -> slices: own slice      (n - 1) A, 0
    SPLIT      whole -> slices: own slice      slices -> whole: all-gather     0, (n - 1) A

The bytes are those that all devices together receive, for a whole tensor of A bytes. The all-reduce is direct: device d
adds up the d-th part of the batch, which it receives from all others, and then all receive all sums. Every device so
holds the same bits. Unlike scratch_allreduce, which adds in place to buckets that live on, all results are new tensors:
nothing is overwritten, so nothing waits for its readers.

Source: Shoeybi et al., Megatron-LM (2019), section 3, where COPY is called f and REDUCE g.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scalecard.hardware.devices import Device, Task, received

BATCH, CHANNELS = 0, 1  # dimensions of every activation


@dataclass(frozen=True)
class Value:
    """A tensor on every device: number `at` of those that the device's Task has made."""

    tasks: Sequence[Task]
    at: int = 0


Devices = Sequence[Device]
Collective = Callable[[Devices, Value], Value]


def all_gather(devices: Devices, slices: Value) -> Value:
    """The whole tensor on every device, from its slices of channels."""
    return _on_each(devices, _joined, CHANNELS, slices)


def all_reduce(devices: Devices, partial: Value) -> Value:
    """The sum on every device; each adds up its part of the batch."""
    return _on_each(devices, _joined, BATCH, _on_each(devices, _sum, BATCH, partial))


def own_slice(devices: Devices, whole: Value) -> Value:
    """Each device's slice of the channels, of which it has all."""
    return Value([d.submit(_own, place, len(devices), whole.at, whole.tasks[place]) for place, d in enumerate(devices)])


def as_it_is(_devices: Devices, value: Value) -> Value:
    return value


@dataclass(frozen=True)
class Exchange:
    """What is done with a tensor between two segments, and with its gradient on the way back."""

    forward: Collective
    backward: Collective


Route = tuple[Exchange, ...]  # one after the other

KEEP: Route = ()
COPY: Route = (Exchange(as_it_is, all_reduce),)
REDUCE: Route = (Exchange(all_reduce, as_it_is),)
GATHER: Route = (Exchange(all_gather, own_slice),)
SPLIT: Route = (Exchange(own_slice, all_gather),)


def forward(devices: Devices, route: Route, value: Value) -> Value:
    """The tensor after all exchanges of a route."""
    for exchange in route:
        value = exchange.forward(devices, value)
    return value


def backward(devices: Devices, route: Route, gradient: Value) -> Value:
    """The gradient before them, from the one after them."""
    for exchange in reversed(route):
        gradient = exchange.backward(devices, gradient)
    return gradient


Made = Any  # what a Task has made: made[at] is a tensor outside of autograd's graph


def _on_each(devices: Devices, work: Callable[..., list[Tensor]], dimension: int, value: Value) -> Value:
    """Let every device make something of what all of them have."""
    return Value([d.submit(work, dimension, place, value.at, *value.tasks) for place, d in enumerate(devices)])


def _joined(dimension: int, place: int, at: int, *made: Made) -> list[Tensor]:
    return [torch.cat(_here(place, [one[at] for one in made]), dimension)]


def _sum(dimension: int, place: int, at: int, *made: Made) -> list[Tensor]:
    first, *others = _here(place, [one[at].tensor_split(len(made), dimension)[place] for one in made])
    total = first.clone()
    for other in others:
        total.add_(other)
    return [total]


def _here(place: int, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors of all devices on this one, number `place`, which receives all but its own."""
    return [tensor if source == place else received(tensor) for source, tensor in enumerate(tensors)]


def _own(place: int, count: int, at: int, made: Made) -> list[Tensor]:
    return [made[at].tensor_split(count, CHANNELS)[place]]
