"""Pipeline parallelism: micro-batches keep all stages busy.

Two executors over the stages of ModelParallel: the textbook's, in which one thread issues the forwards and autograd
runs the backward of the whole batch, and our own, which follows a schedule (records/schedules.py) stage by stage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn

from scalecard.hardware.devices import Device, Task, received
from scalecard.parallel.model_parallel import Loss, ModelParallel, backward
from scalecard.records.schedules import Schedule
from scalecard.workloads.nested import Tree, chunks, mapped, rows
from scalecard.workloads.recipe import OptimizerSettings


class TextbookPipeline(ModelParallel):
    """Split, issue every micro-batch through all stages, concatenate, one backward.

    Source: PyTorch tutorial "Single-Machine Model Parallel Best Practices".
    """

    def step(self, inputs: Tree, targets: Tree, *, split_size: int) -> None:
        """One SGD step with micro-batches of `split_size` samples."""
        outputs = [self.forward(micro) for micro in inputs.split(split_size)]
        last = self.devices[-1]
        whole = last.submit(lambda *parts: torch.cat(parts), *outputs)
        self.update(last.submit(backward, self.loss, whole, targets))


@dataclass
class _Cut:
    """One micro-batch at one stage: its input as a leaf, and its output (at the last stage, its share of the loss).

    The first stage's input needs no gradient.
    """

    leaf: Tensor | None
    output: Tensor


class ScheduledPipeline(ModelParallel):
    """Runs a schedule of forwards and backwards; gradients add up over micro-batches and are applied once."""

    def __init__(
        self,
        stages: Sequence[nn.Module],
        devices: Sequence[Device],
        *,
        schedule: Schedule,
        optimizer: OptimizerSettings,
        loss: Loss,
    ) -> None:
        super().__init__(stages, devices, optimizer=optimizer, loss=loss)
        self.schedule = schedule

    def step(self, inputs: Tree, targets: Tree, *, split_size: int) -> None:
        """One SGD step; a micro-batch's loss is weighted by its share of the whole batch, so uneven ones stay exact.

        A device updates its parameters as soon as its own last backward is done, which it was given before.
        """
        micros = list(zip(chunks(inputs, split_size), chunks(targets, split_size), strict=True))
        total = rows(inputs)
        cuts: dict[tuple[int, int], Task] = {}
        gradients: dict[tuple[int, int], Task] = {}
        for forward, s, m in chain.from_iterable(self.schedule(len(self.stages), len(micros))):
            x, y = micros[m]
            last = s == len(self.stages) - 1
            if forward:
                value = cuts[s - 1, m] if s else x
                goal = (self.loss, y, rows(y) / total) if last else None
                cuts[s, m] = self.devices[s].submit(_forward_cut, self.stages[s], value, goal)
            else:
                gradient = None if last else gradients.pop((s + 1, m))
                gradients[s, m] = self.devices[s].submit(_backward_cut, cuts.pop((s, m)), gradient)
            value = goal = gradient = None  # or the last of each would keep its tensors until the update is done
        self.update()


def _forward_cut(stage: nn.Module, value: "_Cut | Tree", goal: tuple[Loss, Tree, float] | None) -> _Cut:
    if isinstance(value, _Cut):
        taken = leaf = received(value.output.detach()).requires_grad_()
    else:
        taken, leaf = mapped(received, value), None
    output = stage(taken)
    if goal is not None:
        loss, targets, weight = goal
        output = weight * loss(output, targets)
    return _Cut(leaf, output)


def _backward_cut(cut: _Cut, gradient: Tensor | None) -> Tensor | None:
    if gradient is not None:
        gradient = received(gradient)
    torch.autograd.backward(cut.output, gradient)
    return None if cut.leaf is None else cut.leaf.grad
