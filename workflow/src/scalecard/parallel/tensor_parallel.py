"""Tensor parallelism from scratch: every device has a slice of each divided layer's weights, and the whole batch.

A step is a list of segments, which all devices run side by side, each with its own slices, and of exchanges between
them (exchanges.py). Autograd sees one segment on one device at a time: a segment starts from leaves, and its backward
starts from the gradients that the exchange after it, on its way back, has made.

    forward     device 0 | segment 0 | exchange | segment 1 | exchange | ... | segment k, loss |
                device 1 | segment 0 | exchange | segment 1 | exchange | ... | segment k, loss |

    backward    device 0 | segment k | exchange | segment k-1 | exchange | ... | segment 0 | gradients | update |
                device 1 | segment k | exchange | segment k-1 | exchange | ... | segment 0 | gradients | update |

What is not divided is computed by every device alike, the loss too. Kernels that add with atomics may round otherwise
on each, and their replicas would part: so all devices apply device 0's gradient of what is replicated. It is sent as
one tensor, small since only vectors and the smallest layers are replicated; replicas stay the same bit for bit.

Source: Dive into Deep Learning, chapter "Training on Multiple GPUs", "Splitting the Problem": layer-wise partitioning.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from scalecard.hardware.devices import Device, Task, received
from scalecard.parallel import exchanges
from scalecard.parallel.exchanges import Made, Route, Value

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
            places = [value.at for value in values]
            made = [
                device.submit(_run, segment.run, own, number > 0, places, *(value.tasks[d] for value in values))
                for d, (device, own) in enumerate(zip(self.devices, self.modules, strict=True))
            ]
            pieces.append(made)
            values = [
                exchanges.forward(self.devices, route, Value(made, at)) for at, route in enumerate(segment.routes)
            ]
        return pieces

    def _backward(self, pieces: list[list[Task]], batches: Sequence[Batch]) -> None:
        """From the loss to the first segment; pieces are dropped as they are done with."""
        last = zip(self.devices, pieces.pop(), batches, strict=True)
        made = [device.submit(_from_loss, piece, labels) for device, piece, (_, labels) in last]
        for segment in reversed(self.plan.segments[:-1]):
            values = [
                exchanges.backward(self.devices, route, Value(made, at)) for at, route in enumerate(segment.routes)
            ]
            places = [value.at for value in values]
            made = [
                device.submit(_from_gradients, piece, places, *(value.tasks[d] for value in values))
                for d, (device, piece) in enumerate(zip(self.devices, pieces.pop(), strict=True))
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


def _run(run: Run, module: nn.Module, needs_gradient: bool, places: Sequence[int], *made: Made) -> _Piece:
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
