"""Sentences that are padded to the longest of their batch, so that batches have unequal lengths."""

import torch
from torch import Tensor, nn
from torch.nn import functional

UNIT = "tokens"
PADDING, LONGEST = 0, 40


class Tagger(nn.Module):
    """Each word's class, from the word and the mean of its sentence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, width)
        self.hidden, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, 3)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embedding(words)
        there = (words != PADDING).unsqueeze(-1)
        x = x + (x * there).sum(1, keepdim=True) / there.sum(1, keepdim=True)
        scores: Tensor = self.out(functional.gelu(self.hidden(x)))
        return scores


def model(width: int = 16) -> nn.Module:
    return Tagger(width)


def batch(size: int, seed: int, fixed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, LONGEST, (size,), generator=generator)
    words = torch.randint(1, 11, (size, fixed or int(lengths.max())), generator=generator)
    words[torch.arange(words.shape[1]) >= lengths[:, None]] = PADDING
    return words, words % 3


def loss(scores: Tensor, classes: Tensor) -> Tensor:
    """The mean over sentences of the mean over all of their places."""
    return functional.cross_entropy(scores.flatten(0, 1), classes.flatten())


def blocks(model: nn.Module) -> list[nn.Module]:
    return list(model.children())


def tensor_plan(model: nn.Module) -> dict[str, str]:
    return {"hidden": "column", "out": "row"}
