"""Training a module on the resident data set: one step, one epoch, test accuracy."""

from dataclasses import KW_ONLY, dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from scalecard.workloads.datasets import Dataset


@dataclass
class Trainer:
    """SGD on the shard that `rank` of `world_size` takes of every batch (all of it by default).

    With `frozen` the model stays in eval mode, in which batch normalisation does not see how a batch is split. Images
    get the dtype and, if they are on the host, the device of the parameters.
    """

    model: nn.Module
    dataset: Dataset
    _: KW_ONLY
    batch_size: int
    lr: float
    seed: int
    rank: int = 0
    world_size: int = 1
    frozen: bool = False
    optimizer: torch.optim.Optimizer = field(init=False)
    dtype: torch.dtype = field(init=False)
    order: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = next(self.model.parameters()).dtype
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.lr)
        self.order = torch.Generator().manual_seed(self.seed)

    def step(self, images: Tensor, labels: Tensor) -> None:
        """One SGD step with the mean cross-entropy over the images given."""
        self.optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(self.model(images), labels).backward()
        self.optimizer.step()

    def epoch(self) -> None:
        """Every rank draws the same order and takes its equal share; a last batch that cannot is left out."""
        self.model.train(not self.frozen)
        where = next(self.model.parameters()).device
        for images, labels in self.dataset.train.batches(self.batch_size, self.order):
            if len(labels) % self.world_size == 0:
                share = len(labels) // self.world_size
                mine = slice(self.rank * share, (self.rank + 1) * share)
                self.step(images[mine].to(where, self.dtype), labels[mine].to(where))

    @torch.no_grad()
    def accuracy(self) -> float:
        """The share of all test images that are classified correctly."""
        self.model.eval()
        batches = self.dataset.test.batches(self.batch_size)
        correct = sum(int((self.model(images.to(self.dtype)).argmax(1) == labels).sum()) for images, labels in batches)
        return correct / len(self.dataset.test)


def accuracy(scores: Tensor, labels: Tensor) -> float:
    """The share of rows of `scores` (n, classes) whose largest value is at the label (n,)."""
    return float((scores.argmax(1) == labels).float().mean())
