"""A language model as its owners fine-tune it: frozen but for low-rank adapters (LoRA), and it returns its own loss.

Outputs are a dataclass, as those of the transformers library are; embeddings and the head share their weights.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, LENGTH = 16, 6


@dataclass
class Output:
    loss: Tensor
    logits: Tensor


class Adapted(nn.Module):
    """A frozen linear layer, and a product of two narrow matrices that is trained."""

    def __init__(self, width: int, rank: int = 2) -> None:
        super().__init__()
        self.frozen = nn.Linear(width, width).requires_grad_(False)
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(self.frozen(x) + self.up(self.down(x)))


class Tuned(nn.Module):
    def __init__(self, width: int = 12, depth: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width).requires_grad_(False)
        self.layers = nn.ModuleList([Adapted(width) for _ in range(depth)])
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, given: dict[str, Tensor]) -> Output:
        x = self.embedding(given["tokens"])
        for layer in self.layers:
            x = x + self.scale * layer(x)
        logits = self.head(x)
        return Output(functional.cross_entropy(logits.flatten(0, 1), given["labels"].flatten()), logits)


def model() -> nn.Module:
    return Tuned()


def batch(size: int, seed: int) -> tuple[dict[str, Tensor], Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCABULARY, (size, LENGTH + 1), generator=generator)
    return {"tokens": tokens[:, :-1], "labels": tokens[:, 1:]}, tokens[:, 1:]


def loss(output: Output, labels: Tensor) -> Tensor:
    return output.loss


def blocks(model: Tuned) -> list[nn.Module]:
    return [model.embedding, *model.layers]
