"""How a workload is trained: its optimiser, and the precision of its products and convolutions.

A step's gradients g change the parameters p:

    plain_sgd  p -= lr g
    sgd        m = 0.9 m + g;  p -= lr m
    adamw      m = 0.9 m + 0.1 g;  v = 0.95 v + 0.05 g^2;  p -= lr decay p;  p -= lr m' / (sqrt(v') + epsilon)

m' and v' are m / (1 - 0.9^t) and v / (1 - 0.95^t) in step t. With the usual epsilon of 1e-8 a first step has the
gradients' signs alone, and no proof could tell half of a gradient from all of it. So epsilon is 1, and the decay 1e-6:
beside such steps the usual 0.1 would hide the gradients. The values of constants change neither time nor memory.

In bf16 autocast rounds the factors and results of products and convolutions to bfloat16; parameters and gradients stay
float32. FSDP2 does so by a policy of its own (parallel/sharded.py).

Sources: Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019; Kalamkar et al., A Study of BFLOAT16
for Deep Learning Training, 2019.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from scalecard.workloads.nested import leaves

Precision = Literal["float32", "bf16", "auto"]
OptimizerName = Literal["plain_sgd", "sgd", "adamw"]
MOMENTUM = 0.9
BETAS = (0.9, 0.95)
EPSILON, WEIGHT_DECAY = 1.0, 1e-6


@dataclass(frozen=True)
class Recipe:
    """The textbooks' own by default. The precision "auto" is bf16 where the hardware has it."""

    optimizer: OptimizerName = "plain_sgd"
    precision: Precision = "float32"


TEXTBOOKS = Recipe()


@dataclass(frozen=True)
class OptimizerSettings:
    """An optimiser and its learning rate."""

    lr: float
    name: OptimizerName = "plain_sgd"

    @property
    def writes_per_step(self) -> int:
        """How often a step changes a parameter in place, if not by one fused kernel: weight decay does by itself."""
        return 2 if self.name == "adamw" else 1

    @property
    def num_moments(self) -> int:
        """How many tensors as large as a parameter are kept for it from step to step."""
        return {"plain_sgd": 0, "sgd": 1, "adamw": 2}[self.name]

    def state_bytes(self, parameters: Iterable[Tensor]) -> int:
        """Bytes of what is kept for these parameters."""
        return self.num_moments * sum(parameter.nbytes for parameter in parameters)

    def counts(self, parameters: Iterable[Tensor]) -> dict[str, float]:
        """What one step does to these parameters, by the names of counting.py."""
        return {"updates": self.writes_per_step, "optimizer bytes": self.state_bytes(parameters)}

    def build(
        self, parameters: Iterable[Tensor] | Iterable[dict[str, Any]], *, fused: bool = False
    ) -> torch.optim.Optimizer:
        """PyTorch's optimiser of these parameters, or of groups of them; `fused`: one kernel for all of a group."""
        options: Mapping[str, Any] = {"lr": self.lr, "fused": fused or None}
        if self.name == "adamw":
            return torch.optim.AdamW(parameters, betas=BETAS, eps=EPSILON, weight_decay=WEIGHT_DECAY, **options)
        return torch.optim.SGD(parameters, momentum=MOMENTUM if self.name == "sgd" else 0.0, **options)


def in_bfloat16(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, computed under autocast where the first tensor that it gets lies."""

    def run(*args: Any) -> Any:
        with torch.autocast(next(leaves(args)).device.type, torch.bfloat16):
            return function(*args)

    return run


def to_bfloat16(module: nn.Module) -> nn.Module:
    """The module, whose forward computes in bfloat16 from now on.

    It gets a class of its own, which copies and replicas of nn.DataParallel keep: a forward that belonged to the object
    would go on computing with the parameters of the first.
    """
    kind = type(module)
    module.__class__ = type(
        kind.__name__, (kind,), {"forward": in_bfloat16(kind.forward), "__module__": kind.__module__}
    )
    return module
