"""How a step's gradients g change the parameters p: plain SGD, as in the textbooks, SGD with momentum, or AdamW.

    plain     p -= lr g
    sgd       m = 0.9 m + g;  p -= lr m
    adamw     m = 0.9 m + 0.1 g;  v = 0.95 v + 0.05 g^2;  p -= lr decay p;  p -= lr m' / (sqrt(v') + epsilon)

m' and v' are m / (1 - 0.9^t) and v / (1 - 0.95^t) in step t. Epsilon is 1 and the decay 1e-6: with the usual 1e-8 and
0.1, a first step is the gradients' signs and mostly decay, and no proof could tell half of a gradient from all of it.
Either takes the same time and memory.

Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

Optimizer = Literal["plain", "sgd", "adamw"]
MOMENTUM = 0.9
BETAS = (0.9, 0.95)
EPSILON, DECAY = 1.0, 1e-6


@dataclass(frozen=True)
class Update:
    """A learning rate, and the optimiser that has it."""

    lr: float
    optimizer: Optimizer = "plain"

    @property
    def changes(self) -> int:
        """How often a step changes a parameter in place: AdamW's decay does by itself."""
        return 2 if self.optimizer == "adamw" else 1

    @property
    def values_kept(self) -> int:
        """How many values are kept from step to step for each value of a parameter."""
        return {"plain": 0, "sgd": 1, "adamw": 2}[self.optimizer]

    def counts(self, parameters: Iterable[Tensor], steps: int = 1) -> dict[str, float]:
        """What so many steps do to these parameters, by the names in counting.py."""
        kept = self.values_kept * sum(parameter.nbytes for parameter in parameters)
        return {"updates": steps * self.changes, "optimizer bytes": kept}

    def of(
        self, parameters: Iterable[Tensor] | Iterable[dict[str, Any]], *, fused: bool = False
    ) -> torch.optim.Optimizer:
        """PyTorch's optimiser of these parameters, or of groups of them; `fused`: one kernel for all of a group."""
        options: Mapping[str, Any] = {"lr": self.lr, "fused": fused or None}
        if self.optimizer == "adamw":
            return torch.optim.AdamW(parameters, betas=BETAS, eps=EPSILON, weight_decay=DECAY, **options)
        return torch.optim.SGD(parameters, momentum=MOMENTUM if self.optimizer == "sgd" else 0.0, **options)
