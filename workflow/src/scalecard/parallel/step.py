"""One training step of any module on one resident batch, however the module is wrapped."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn

from scalecard.workloads.nested import Tree
from scalecard.workloads.recipe import OptimizerSettings
from scalecard.workloads.reference import trainable, untrained


class Step:
    """Forward, loss, backward, update, each time it is called; the gradients are cleared."""

    def __init__(
        self,
        module: nn.Module,
        parameters: Iterable[Tensor],
        inputs: Tree,
        targets: Tree,
        *,
        loss: Callable[[Any, Any], Tensor],
        optimizer: OptimizerSettings,
    ) -> None:
        self.module, self.inputs, self.targets, self.loss = module, inputs, targets, loss
        self.optimizer = optimizer.build(parameters)

    def __call__(self) -> None:
        self.loss(self.module(self.inputs), self.targets).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def state_of(model: nn.Module) -> list[Tensor]:
    """What training changes or may change: trained parameters, then the others and the buffers."""
    return [*trainable(model), *untrained(model)]
