"""Data parallelism over ranks, each of which uses model parallelism over its own devices.

rank 0   device 0   | F0            B0 | average over ranks |
         device 1   |    F1      B1    | average over ranks |
rank 1   device 2   | F0            B0 | average over ranks |
         device 3   |    F1      B1    | average over ranks |

Each stage's gradients form one bucket, averaged after the whole backward by the stage's own process group: the stages
run side by side, and a group's collectives must come in the same order on every rank.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from scalecard.hardware.devices import Device, Task
from scalecard.parallel.model_parallel import Loss, ModelParallel


class HybridParallel(ModelParallel):
    """Stages on this rank's devices. With equal batches on all ranks, a step is one step on all batches together."""

    def __init__(
        self,
        stages: Sequence[nn.Module],
        devices: Sequence[Device],
        *,
        lr: float,
        loss: Loss,
        groups: Sequence[dist.ProcessGroup],
    ) -> None:
        super().__init__(stages, devices, lr=lr, loss=loss)
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
