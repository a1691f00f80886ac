"""torch.distributed.pipelining, one or more stages per rank: the library's counterpart to our pipeline.

rank 0   stage 0, and of an interleaved schedule also stage 2
rank 1   stage 1                                  and stage 3
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from scalecard.parallel.gradients import clip, squared_norm
from scalecard.parallel.model_parallel import Loss, average
from scalecard.workloads.nested import Tree
from scalecard.workloads.recipe import OptimizerSettings, in_layout

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved 1f1b": ScheduleInterleaved1F1B}


class _ToChannelsLast(torch.autograd.Function):
    """Images channels last; the gradient that comes back for them is contiguous again."""

    @staticmethod
    def forward(_context: Any, images: Tensor) -> Tensor:
        laid = in_layout(images, True)
        return laid.view_as(laid)

    @staticmethod
    def backward(_context: Any, gradient: Tensor) -> Tensor:
        return gradient.contiguous()


def channels_last_stage(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A stage's forward whose images lie channels last in between: the library sends contiguous tensors alone."""

    def run(stage: nn.Module, images: Tensor) -> Tensor:
        made: Tensor = forward(stage, _ToChannelsLast.apply(images))
        return made.contiguous()

    return run


class LibraryPipeline:
    """A rank's `stages`, by their number, of `num_stages`; `num_micro` micro-batches must divide the batch evenly.

    `group` are the ranks of one pipeline, as `pipeline_group` makes it. If `replicas` is given, every step averages the
    gradients over those ranks, which have the same stages of other pipelines, and other batches.
    """

    def __init__(
        self,
        stages: Mapping[int, nn.Module],
        num_stages: int,
        batch: tuple[Tree, Tree],
        *,
        schedule: str,
        num_micro: int,
        device: torch.device,
        loss: Loss,
        optimizer: OptimizerSettings,
        group: dist.ProcessGroup,
        replicas: dist.ProcessGroup | None = None,
    ) -> None:
        self.modules, self.replicas = [stage.to(device) for stage in stages.values()], replicas
        self.group, self.max_norm = group, optimizer.clip
        made = [PipelineStage(stage, number, num_stages, device, group=group) for number, stage in stages.items()]
        self.schedule = SCHEDULES[schedule](made if len(made) > 1 else made[0], num_micro, loss_fn=loss)
        inputs, targets = batch
        self.first = (inputs,) if 0 in stages else ()
        self.last = {"target": targets} if num_stages - 1 in stages else {}
        self.optimizer = optimizer.build([p for stage in self.modules for p in stage.parameters()])

    def step(self) -> None:
        """One step on the whole batch. The library averages mean losses, so micro-batches must be equal."""
        self.schedule.step(*self.first, **self.last)
        for stage in self.modules:
            if self.replicas:
                average(stage, self.replicas)
        if self.max_norm:
            squared = squared_norm(self.optimizer)
            dist.all_reduce(squared, group=self.group)
            clip(self.optimizer, squared, self.max_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def state(self) -> list[Tensor]:
        """These stages' parameters, then their buffers."""
        parameters = [p for stage in self.modules for p in stage.parameters()]
        return parameters + [b for stage in self.modules for b in stage.buffers()]
