"""Tensor parallelism from scratch: every device has a slice of each divided layer's weights, and the whole batch.

A step is a list of segments, which all devices run side by side, each with its own slices, and of exchanges between
them. Autograd sees one segment on one device at a time: a segment starts from leaves, and its backward starts from the
gradients that the exchange after it, on its way back, has made.

    forward     device 0 | segment 0 | exchange | segment 1 | exchange | ... | segment k, loss |
                device 1 | segment 0 | exchange | segment 1 | exchange | ... | segment k, loss |

    backward    device 0 | segment k | exchange | segment k-1 | exchange | ... | segment 0 | gradients | update |
                device 1 | segment k | exchange | segment k-1 | exchange | ... | segment 0 | gradients | update |

What is not divided is computed by every device alike, the loss too. Kernels that add with atomics may round otherwise
on each, and their replicas would part: so all devices apply device 0's gradient of what is replicated. It is sent as
one tensor, small since only vectors and the smallest layers are replicated; replicas stay the same bit for bit.

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

Sources: Dive into Deep Learning, chapter "Training on Multiple GPUs", "Splitting the Problem": layer-wise partitioning;
Shoeybi et al., Megatron-LM (2019), section 3, where COPY is called f and REDUCE g.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

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


def all_reduce(devices: Devices, summands: Value) -> Value:
    """The sum on every device; each adds up its part of the batch."""
    return _on_each(devices, _joined, BATCH, _on_each(devices, _sum, BATCH, summands))


def own_slice(devices: Devices, whole: Value) -> Value:
    """Each device's slice of the channels, of which it has all."""
    return Value([d.submit(_own, place, len(devices), whole.at, whole.tasks[place]) for place, d in enumerate(devices)])


def as_it_is(_devices: Devices, value: Value) -> Value:
    return value


Route = tuple[tuple[Collective, Collective], ...]  # one after the other: in the forward, and in the backward

KEEP: Route = ()
COPY: Route = ((as_it_is, all_reduce),)
REDUCE: Route = ((all_reduce, as_it_is),)
GATHER: Route = ((all_gather, own_slice),)
SPLIT: Route = ((own_slice, all_gather),)


def forward(devices: Devices, route: Route, value: Value) -> Value:
    """The tensor after all exchanges of a route."""
    for exchange, _ in route:
        value = exchange(devices, value)
    return value


def backward(devices: Devices, route: Route, gradient: Value) -> Value:
    """The gradient before them, from the one after them."""
    for _, exchange in reversed(route):
        gradient = exchange(devices, gradient)
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


Batch = tuple[Tensor, Tensor]
Run = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True)
class Segment:
    """What every device runs, run(module, *tensors) with its own slice of the module, and a route for each result."""

    run: Run
    routes: tuple[Route, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The segments of a network, of which the last returns the scores, and its divided parameters and buffers.

    `divided` has the dimension that is divided by the tensor's name; what it does not name is replicated.
    """

    segments: Sequence[Segment]
    divided: Mapping[str, int]


class OneDevice:
    """The plain module on one device: what dividing it is compared with."""

    def __init__(self, device: Device, module: nn.Module, *, lr: float) -> None:
        self.device, self.module = device, copy.deepcopy(module).to(device.torch)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=lr)

    def step(self, batches: Sequence[Batch]) -> None:
        """One SGD step with the mean cross-entropy of (images, labels)."""
        self.device.submit(self._step, *batches[0])

    def _step(self, images: Tensor, labels: Tensor) -> None:
        functional.cross_entropy(self.module(images), labels).backward()
        _update(self.optimizer)

    def state(self) -> list[Tensor]:
        """All parameters, then all buffers."""
        return [*self.module.parameters(), *self.module.buffers()]

    whole = state


class TensorParallel:
    """A network divided over devices by a plan. Slices may be uneven, and empty if there are fewer channels."""

    def __init__(self, devices: Sequence[Device], module: nn.Module, plan: Plan, *, lr: float) -> None:
        self.devices, self.plan = devices, plan
        self.modules = [
            _sliced(module, plan.divided, place, len(devices)).to(device.torch) for place, device in enumerate(devices)
        ]
        self.optimizers = [torch.optim.SGD(own.parameters(), lr=lr) for own in self.modules]
        self.replicated = [
            [tensor for name, tensor in own.named_parameters() if name not in plan.divided] for own in self.modules
        ]

    def step(self, batches: Sequence[Batch]) -> None:
        """One SGD step with the mean cross-entropy; every device has its own copy of the batch, (images, labels)."""
        self._backward(self._forward(batches), batches)
        if self.replicated[0] and len(self.devices) > 1:
            self._agree()
        for device, optimizer in zip(self.devices, self.optimizers, strict=True):
            device.submit(_update, optimizer)

    def _forward(self, batches: Sequence[Batch]) -> list[list[Task]]:
        """Every segment's pieces, one per device."""
        values, pieces = [Value([Task([images]) for images, _ in batches])], []
        for number, segment in enumerate(self.plan.segments):
            made = self._submit(partial(_run, segment.run, number > 0), self.modules, values)
            pieces.append(made)
            values = [forward(self.devices, route, Value(made, at)) for at, route in enumerate(segment.routes)]
        return pieces

    def _backward(self, pieces: list[list[Task]], batches: Sequence[Batch]) -> None:
        """From the loss to the first segment; pieces are dropped as they are done with."""
        last = zip(self.devices, pieces.pop(), batches, strict=True)
        made = [device.submit(_from_loss, piece, labels) for device, piece, (_, labels) in last]
        for segment in reversed(self.plan.segments[:-1]):
            values = [backward(self.devices, route, Value(made, at)) for at, route in enumerate(segment.routes)]
            made = self._submit(_from_gradients, pieces.pop(), values)

    def _submit(self, work: Callable[..., Any], held: Sequence[Any], values: Sequence[Value]) -> list[Task]:
        """work(own, places, *made) to every device, with what it holds and what made its tensors of these values."""
        places = [value.at for value in values]
        return [
            device.submit(work, own, places, *(value.tasks[d] for value in values))
            for d, (device, own) in enumerate(zip(self.devices, held, strict=True))
        ]

    def _agree(self) -> None:
        first, *others = self.devices
        gradients = first.submit(_flat_gradients, self.replicated[0])
        for device, replicas in zip(others, self.replicated[1:], strict=True):
            device.submit(_take_gradients, replicas, gradients)

    def state(self) -> list[Tensor]:
        """All devices' parameters, then all devices' buffers: slices and replicas."""
        parameters = [tensor for own in self.modules for tensor in own.parameters()]
        return parameters + [tensor for own in self.modules for tensor in own.buffers()]

    def whole(self) -> list[Tensor]:
        """Parameters, then buffers, put together from their slices, in the plain module's order and on its devices."""
        parameters = [dict(own.named_parameters()) for own in self.modules]
        buffers = [dict(own.named_buffers()) for own in self.modules]
        return [self._whole(name, kinds) for kinds in (parameters, buffers) for name in kinds[0]]

    def _whole(self, name: str, of_devices: Sequence[Mapping[str, Tensor]]) -> Tensor:
        tensors = [own[name].detach() for own in of_devices]
        first = tensors[0]
        dimension = self.plan.divided.get(name)
        return first if dimension is None else torch.cat([tensor.to(first.device) for tensor in tensors], dimension)


def _sliced(module: nn.Module, divided: Mapping[str, int], place: int, count: int) -> nn.Module:
    """A copy of the module that has slice number `place` of `count` of what is divided."""
    own = copy.deepcopy(module)
    for name, dimension in divided.items():
        parent, _, last = name.rpartition(".")
        holder = own.get_submodule(parent)
        tensor: Tensor = getattr(holder, last)
        part = tensor.detach().tensor_split(count, dimension)[place].clone(memory_format=torch.contiguous_format)
        setattr(holder, last, nn.Parameter(part) if isinstance(tensor, nn.Parameter) else part)
    return own


@dataclass
class _Piece:
    """One segment on one device: the leaves that it starts from, and what it made of them."""

    leaves: list[Tensor]
    outputs: tuple[Tensor, ...]

    def __getitem__(self, at: int) -> Tensor:
        """A result outside of autograd's graph, which ends here."""
        return self.outputs[at].detach()


def _run(run: Run, needs_gradient: bool, module: nn.Module, places: Sequence[int], *made: Made) -> _Piece:
    leaves = [one[at].detach().requires_grad_(needs_gradient) for at, one in zip(places, made, strict=True)]
    return _Piece(leaves, run(module, *leaves))


def _from_loss(piece: _Piece, labels: Tensor) -> list[Tensor | None]:
    """The gradients of the last segment's leaves."""
    functional.cross_entropy(piece.outputs[0], labels).backward()
    return [leaf.grad for leaf in piece.leaves]


def _from_gradients(piece: _Piece, places: Sequence[int], *made: Made) -> list[Tensor | None]:
    """The gradients of a segment's leaves, from those of its results."""
    torch.autograd.backward(piece.outputs, [one[at] for at, one in zip(places, made, strict=True)])
    return [leaf.grad for leaf in piece.leaves]


def _flat_gradients(replicas: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.grad.flatten() for tensor in replicas if tensor.grad is not None])


def _take_gradients(replicas: Sequence[Tensor], gradients: Tensor) -> None:
    parts = received(gradients).split([tensor.numel() for tensor in replicas])
    for tensor, part in zip(replicas, parts, strict=True):
        tensor.grad = part.view_as(tensor)


def _update(optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
