"""Model parallelism and its pipeline as the tutorial prints them: one module, one thread, default streams.

device 0   | F0 | F1 | F2 |                      while the first stage computes a micro-batch,
device 1   |    | F0 | F1 | F2 | B |             the second computes the one before

A device's copies queue behind what it computes, which our own executors avoid (hardware/devices.py). Autograd runs the
backward of the whole batch. A step draws its batch on the host and sends it to the devices, all of which is timed.

Source: PyTorch tutorial "Single-Machine Model Parallel Best Practices".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


class TutorialModel(nn.Module):
    """Stages on devices of their own, of which the tutorial has two; with one, its single-device network.

    `split_size` is the samples of a micro-batch; 0: the whole batch.
    """

    def __init__(self, stages: Sequence[nn.Module], devices: Sequence[torch.device], split_size: int = 0) -> None:
        super().__init__()
        pairs = zip(stages, devices, strict=True)
        self.stages = nn.ModuleList(stage.to(device) for stage, device in pairs)
        self.devices, self.split_size = devices, split_size

    def forward(self, inputs: Tensor) -> Tensor:
        """The output, on the last device."""
        parts = iter(inputs.split(self.split_size or len(inputs)))
        handed_over, outputs = self._first(next(parts)), list[Tensor]()
        for part in parts:
            outputs.append(self._others(handed_over))
            handed_over = self._first(part)
        outputs.append(self._others(handed_over))
        return torch.cat(outputs) if len(outputs) > 1 else outputs[0]

    def _first(self, part: Tensor) -> Tensor:
        """What the first stage makes of it, sent to the next one."""
        output: Tensor = self.stages[0](part)
        return output.to(self.devices[1]) if len(self.devices) > 1 else output

    def _others(self, value: Tensor) -> Tensor:
        for stage, device in zip(self.stages[1:], self.devices[1:], strict=True):
            value = stage(value.to(device))
        return value


@dataclass(eq=False)
class TutorialStep:
    """Draw a batch on the host, send it, forward, loss, backward, update.

    The tutorial draws other images in every step; here `draw` gives the same ones, at the same cost, so that what a
    step computes can be proven.
    """

    model: TutorialModel
    draw: Callable[[], tuple[Tensor, Tensor]]
    loss: Callable[[Any, Any], Tensor]
    optimizer: torch.optim.Optimizer

    def __call__(self) -> None:
        inputs, targets = self.draw()
        self.optimizer.zero_grad()
        outputs = self.model(inputs.to(self.model.devices[0]))
        self.loss(outputs, targets.to(outputs.device)).backward()
        self.optimizer.step()
