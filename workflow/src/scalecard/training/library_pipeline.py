"""torch.distributed.pipelining's own schedules, one stage per rank: the library's counterpart to our pipeline."""

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn import functional

from scalecard.distributed.context import RankContext
from scalecard.training.resnet50 import Workload, one_hot_images

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class LibraryPipeline:
    """One stage of ResNet-50 per rank, `module` being this rank's; micro-batches must divide the batch evenly."""

    def __init__(self, ctx: RankContext, load: Workload, schedule: str, split_size: int, module: nn.Module) -> None:
        self.rank = ctx.rank
        module.to(ctx.device)
        self.optimizer = torch.optim.SGD(module.parameters(), lr=load.lr)
        stage = PipelineStage(module, ctx.rank, ctx.world_size, ctx.device)
        num_micro = load.batch_size // split_size
        self.schedule = SCHEDULES[schedule](stage, num_micro, loss_fn=functional.mse_loss)
        self.module = module
        self.images, self.targets = one_hot_images(load, ctx.device, ctx.device)

    def step(self) -> None:
        """One SGD step on the whole batch. The library averages mean losses, so micro-batches must be equal."""
        self.optimizer.zero_grad(set_to_none=True)
        if self.rank == 0:
            self.schedule.step(self.images)
        else:
            self.schedule.step(target=self.targets)
        self.optimizer.step()

    def state(self) -> list[Tensor]:
        """This stage's parameters, then its buffers."""
        return [*self.module.parameters(), *self.module.buffers()]
