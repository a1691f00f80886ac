"""Pipeline parallelism: micro-batches keep all stages busy.

Two executors over the stages of ModelParallel: the textbook's, in which one thread issues the forwards and autograd
runs the backward of the whole batch, and our own, which follows a schedule (schedules.py) stage by stage.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from scalecard.hardware.devices import Task, received
from scalecard.training.model_parallel import ModelParallel, backward
from scalecard.training.schedules import Schedule


class TextbookPipeline(ModelParallel):
    """Split, issue every micro-batch through all stages, concatenate, one backward.

    Source: PyTorch tutorial "Single-Machine Model Parallel Best Practices".
    """

    def pipelined_step(self, inputs: Tensor, targets: Tensor, *, split_size: int) -> None:
        """One SGD step with micro-batches of `split_size` samples."""
        outputs = [self.forward(micro) for micro in inputs.split(split_size)]
        last = self.devices[-1]
        whole = last.submit(_concatenate, *outputs)
        self.update(last.submit(backward, whole, targets))


def _concatenate(*parts: Tensor) -> Tensor:
    return torch.cat(parts)


@dataclass
class _Cut:
    """One micro-batch at one stage: its input as a leaf, and its output (at the last stage, its share of the loss)."""

    leaf: Tensor
    output: Tensor


@dataclass
class _InFlight:
    cuts: dict[tuple[int, int], Task] = field(default_factory=dict)
    gradients: dict[tuple[int, int], Task] = field(default_factory=dict)


class ScheduledPipeline(ModelParallel):
    """Runs a schedule of forwards and backwards; gradients add up over micro-batches and are applied once."""

    def pipelined_step(self, inputs: Tensor, targets: Tensor, *, split_size: int, schedule: Schedule) -> None:
        """One SGD step; a micro-batch's loss is weighted by its share of the whole batch, so uneven ones stay exact.

        A device updates its parameters as soon as its own last backward is done, which it was given before.
        """
        micros = list(zip(inputs.split(split_size), targets.split(split_size), strict=True))
        flight = _InFlight()
        for tick in schedule(len(self.stages), len(micros)):
            for action in tick:
                run = self._forward if action.forward else self._backward
                run(flight, action.stage, action.micro, *micros[action.micro], targets.numel())
        self.update()

    def _forward(self, flight: _InFlight, s: int, m: int, inputs: Tensor, targets: Tensor, total: int) -> None:
        last = s == len(self.stages) - 1
        value = flight.cuts[s - 1, m] if s else inputs
        goal = targets if last else None
        flight.cuts[s, m] = self.devices[s].submit(_forward_cut, self.stages[s], value, goal, total)

    def _backward(self, flight: _InFlight, s: int, m: int, *_unused: object) -> None:
        last = s == len(self.stages) - 1
        gradient = None if last else flight.gradients.pop((s + 1, m))
        flight.gradients[s, m] = self.devices[s].submit(_backward_cut, flight.cuts.pop((s, m)), gradient)


def _forward_cut(stage: nn.Module, value: "_Cut | Tensor", targets: Tensor | None, total: int) -> _Cut:
    made = value.output if isinstance(value, _Cut) else value
    leaf = received(made.detach()).requires_grad_(isinstance(value, _Cut))
    output = stage(leaf)
    if targets is not None:
        output = functional.mse_loss(output, targets, reduction="sum") / total
    return _Cut(leaf, output)


def _backward_cut(cut: _Cut, gradient: Tensor | None) -> Tensor | None:
    if gradient is not None:
        gradient = received(gradient)
    torch.autograd.backward(cut.output, gradient)
    return cut.leaf.grad
