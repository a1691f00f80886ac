"""Model parallelism: consecutive stages of a network on consecutive devices, one minibatch at a time.

device 0   | F0            B0 |
device 1   |    F1      B1    |      one device computes while the other waits
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from scalecard.hardware.devices import Device, Task, received
from scalecard.training.trees import Tree, mapped

Loss = Callable[[Any, Any], Tensor]


class ModelParallel:
    """Stages on devices; with every stage on one device, the single-device baseline. Autograd runs the backward.

    On CUDA, autograd runs each device's part on that device. On a CPU the backward runs in the thread that starts it,
    here the last device's worker.
    """

    def __init__(
        self, stages: Sequence[nn.Module], devices: Sequence[Device], *, lr: float, loss: Loss = functional.mse_loss
    ) -> None:
        self.devices, self.loss = devices, loss
        self.stages = [stage.to(device.torch) for stage, device in zip(stages, devices, strict=True)]
        self.optimizers = [torch.optim.SGD(stage.parameters(), lr=lr) for stage in self.stages]

    def forward(self, inputs: Tree | Task) -> Task:
        """The output, on the last device, as a Task."""
        value: Tree | Task = inputs
        for device, stage in zip(self.devices, self.stages, strict=True):
            value = device.submit(run_stage, stage, value)
        assert isinstance(value, Task)
        return value

    def step(self, inputs: Tree, targets: Tree) -> None:
        """One SGD step with the loss against `targets`, which live on the last device."""
        done = self.devices[-1].submit(backward, self.loss, self.forward(inputs), targets)
        self.update(done)

    def update(self, *after: Task) -> None:
        """Apply and clear the gradients on every device once the tasks `after` are done."""
        for device, optimizer in zip(self.devices, self.optimizers, strict=True):
            device.submit(_update, optimizer, *after)

    def parameters(self) -> list[Tensor]:
        """Every stage's parameters, in the order of the stages."""
        return [p for stage in self.stages for p in stage.parameters()]

    def state(self) -> list[Tensor]:
        """Every stage's parameters, then every stage's buffers."""
        return self.parameters() + [b for stage in self.stages for b in stage.buffers()]


def run_stage(stage: nn.Module, inputs: Tree) -> Tree:
    """The stage's output on the device that runs this, to which the inputs are copied first."""
    return stage(mapped(received, inputs))


def backward(loss: Loss, output: Tree, targets: Tree) -> None:
    """Backward of the loss."""
    loss(output, targets).backward()


def _update(optimizer: torch.optim.Optimizer, *_after: object) -> None:
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


class StageAlone:
    """One stage's forward and backward on fixed tensors, which takes as long as its device is busy in a step."""

    def __init__(self, stage: nn.Module, inputs: Tensor, device: Device, *, needs_gradient: bool = False) -> None:
        self.device = device
        self.stage = stage.to(device.torch)
        self.inputs = inputs.detach().to(device.torch).requires_grad_(needs_gradient)
        self.gradient = torch.ones_like(self.stage(self.inputs)).mul_(1e-3)

    def run(self, count: int) -> None:
        """Forward and backward `count` times; the last gradients stay."""
        for _ in range(count):
            self.device.submit(self._once)

    def _once(self) -> None:
        self.stage.zero_grad(set_to_none=True)
        self.inputs.grad = None
        self.stage(self.inputs).backward(self.gradient)

    def gradients(self) -> list[Tensor]:
        """Of the last backward, one tensor per parameter."""
        return [p.grad for p in self.stage.parameters() if p.grad is not None]
