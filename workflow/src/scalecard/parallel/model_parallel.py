"""Model parallelism: consecutive stages of a network on consecutive devices, one minibatch at a time.

device 0   | F0            B0 |
device 1   |    F1      B1    |      one device computes while the other waits

Data parallelism over ranks, each of which uses model parallelism over its own devices.

rank 0   device 0   | F0            B0 | average over ranks |
         device 1   |    F1      B1    | average over ranks |
rank 1   device 2   | F0            B0 | average over ranks |
         device 3   |    F1      B1    | average over ranks |

Each stage's gradients form one bucket, averaged after the whole backward by the stage's own process group: the stages
run side by side, and a group's collectives must come in the same order on every rank.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from scalecard.hardware.devices import Device, Task, received
from scalecard.parallel.step import clip, squared_norm
from scalecard.workloads.nested import Tree, chunks, mapped, rows
from scalecard.workloads.recipe import OptimizerSettings

Loss = Callable[[Any, Any], Tensor]


class ModelParallel:
    """Stages on devices; with every stage on one device, the single-device baseline. Autograd runs the backward.

    On CUDA, autograd runs each device's part on that device. On a CPU the backward runs in the thread that starts it,
    here the last device's worker.
    """

    def __init__(
        self,
        stages: Sequence[nn.Module],
        devices: Sequence[Device],
        *,
        optimizer: OptimizerSettings,
        loss: Loss,
    ) -> None:
        self.devices, self.loss, self.max_norm = devices, loss, optimizer.clip
        self.stages = [stage.to(device.torch) for stage, device in zip(stages, devices, strict=True)]
        self.optimizers = [optimizer.build(stage.parameters()) for stage in self.stages]

    def forward(self, inputs: Tree | Task, *after: Task) -> Task:
        """The output, on the last device, as a Task; the first one begins once the tasks `after` are done."""
        value: Tree | Task = inputs
        for device, stage in zip(self.devices, self.stages, strict=True):
            value = device.submit(run_stage, stage, value, *after)
            after = ()
        assert isinstance(value, Task)
        return value

    def step(self, inputs: Tree, targets: Tree, *, split_size: int) -> None:
        """One step with the loss against `targets`, which live on the last device.

        `split_size` samples at a time, one part after another, whose gradients add up.
        """
        done = list[Task]()
        for part, goal in zip(chunks(inputs, split_size), chunks(targets, split_size), strict=True):
            output = self.forward(part, *done)
            done = [self.devices[-1].submit(backward, self.loss, output, goal, rows(part) / rows(inputs))]
        self.update(*done)

    def update(self, *after: Task) -> None:
        """Clip, apply and clear the gradients on every device once the tasks `after` are done."""
        pairs, ready = list(zip(self.devices, self.optimizers, strict=True)), list(after)
        if self.max_norm:
            ready = [device.submit(_squared_norm, optimizer, *after) for device, optimizer in pairs]
        for device, optimizer in pairs:
            device.submit(_update, optimizer, self.max_norm, *ready)


def run_stage(stage: nn.Module, inputs: Tree, *_after: object) -> Tree:
    """The stage's output on the device that runs this, to which the inputs are copied first."""
    return stage(mapped(received, inputs))


def backward(loss: Loss, output: Tree, targets: Tree, weight: float = 1.0) -> None:
    value = loss(output, targets)
    (value if weight == 1 else weight * value).backward()


def _squared_norm(optimizer: torch.optim.Optimizer, *_after: object) -> Tensor:
    return squared_norm(optimizer)


def _update(optimizer: torch.optim.Optimizer, max_norm: float, *ready: Any) -> None:
    """With `max_norm`, `ready` are the squared norms of the gradients of every stage."""
    if max_norm:
        clip(optimizer, torch.stack([received(squared) for squared in ready]).sum(), max_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


@dataclass(frozen=True)
class Given:
    """What a stage gets in a step: its inputs and, if its loss counts as its work, the targets."""

    inputs: Tree
    targets: Tree = None
    loss: Loss | None = None

    def through(self, stage: nn.Module) -> Tensor:
        """What the stage makes of it: its output, or the loss."""
        output = stage(self.inputs)
        return output if self.loss is None else self.loss(output, self.targets)

    def mapped(self, function: Callable[[Tree], Tree]) -> "Given":
        """With function(tree) in the place of the inputs and of the targets."""
        return replace(self, inputs=function(self.inputs), targets=function(self.targets))

    def to(self, device: torch.device) -> "Given":
        """The same on a device, without what computed it."""
        return self.mapped(partial(mapped, lambda tensor: tensor.detach().to(device)))


class StageAlone:
    """One stage's forward and backward on fixed tensors, which takes as long as its device is busy in a step.

    As in a pipeline, the gradients of consecutive micro-batches, each like what is given, add up. What comes back from
    the next stage is normal: the gradient of a sum would vanish in a stage that ends with a normalisation.
    """

    def __init__(self, stage: nn.Module, given: Given, device: Device, *, needs_gradient: bool = False) -> None:
        self.device, self.needs_gradient = device, needs_gradient
        self.stage = stage.to(device.torch)
        self.given = given.to(device.torch)
        with torch.no_grad():
            output = self.given.through(self.stage)
        self.gradient = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).to(output)

    def run(self, count: int, *, num_micro: int = 1) -> None:
        """`count` batches of so many micro-batches, forward and backward; the gradients of the last batch stay."""
        for _ in range(count):
            self.device.submit(self._batch, num_micro)

    def forward(self, num_micro: int) -> Task:
        """The forwards of one batch, and its last output; until it is done, all of their graphs are kept."""
        return self.device.submit(lambda: self._forwards(num_micro)[-1].detach())

    def _forwards(self, num_micro: int) -> list[Tensor]:
        leaf = partial(mapped, lambda tensor: tensor.detach().requires_grad_(self.needs_gradient))
        return [replace(self.given, inputs=leaf(self.given.inputs)).through(self.stage) for _ in range(num_micro)]

    def _batch(self, num_micro: int) -> None:
        self.stage.zero_grad(set_to_none=True)
        outputs = self._forwards(num_micro)
        while outputs:
            outputs.pop(0).backward(self.gradient)

    def gradients(self) -> list[Tensor]:
        """Of the last batch, one tensor per parameter."""
        return [p.grad for p in self.stage.parameters() if p.grad is not None]


class HybridParallel(ModelParallel):
    """Stages on this rank's devices. With equal batches on all ranks, a step is one step on all batches together."""

    def __init__(
        self,
        stages: Sequence[nn.Module],
        devices: Sequence[Device],
        *,
        groups: Sequence[dist.ProcessGroup],
        optimizer: OptimizerSettings,
        loss: Loss,
    ) -> None:
        super().__init__(stages, devices, optimizer=optimizer, loss=loss)
        self.groups = groups

    def update(self, *after: Task) -> None:
        """Average the gradients over the ranks, then apply and clear them."""
        averaged = [
            device.submit(average, stage, group, *after)
            for device, stage, group in zip(self.devices, self.stages, self.groups, strict=True)
        ]
        super().update(*averaged)


def average(stage: nn.Module, group: dist.ProcessGroup, *_after: object) -> None:
    """Replace the stage's gradients by their mean over the group's ranks, in one bucket."""
    gradients = [p.grad for p in stage.parameters() if p.grad is not None]
    bucket = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(bucket, group=group)
    bucket /= group.size()
    for gradient, mean in zip(gradients, bucket.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))
