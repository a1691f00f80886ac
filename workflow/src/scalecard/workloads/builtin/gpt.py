"""A small decoder-only transformer on random tokens, written for clarity.

    tokens -> embedding + position -> [ x + attention(norm(x)), x + mlp(norm(x)) ] x layers -> norm -> scores

Source: Radford et al., Language Models are Unsupervised Multitask Learners (GPT-2), 2019.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from scalecard.workloads.nested import at_least_float32

UNIT = "tokens"
INIT_STD = 0.02
TEXT = 2**22  # tokens of the data set


class Attention(nn.Module):
    """Causal self-attention; query, key and value are layers of their own, so that heads can be divided."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(n, sequence, width) to the same; of the heads, this device may have a share, which must be whole heads."""
        here = [layer(x) for layer in (self.query, self.key, self.value)]
        if here[0].shape[-1] % self.head_width:
            raise ValueError(f"each device would have {here[0].shape[-1] / self.head_width:g} of {self.heads} heads")
        q, k, v = (values.unflatten(-1, (-1, self.head_width)).transpose(1, 2) for values in here)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """Attention, then a two-layer perceptron, each on a normalised copy and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y: Tensor = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return y


class Embedding(nn.Module):
    """Tokens and their positions."""

    def __init__(self, vocabulary: int, sequence: int, width: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """(n, sequence) tokens to (n, sequence, width)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        embedded: Tensor = self.token(tokens) + self.position(places)
        return embedded


def model(
    *, layers: int = 12, width: int = 1024, heads: int = 16, sequence: int = 1024, vocabulary: int = 50304
) -> nn.Module:
    """The default has half the layers of GPT-2 medium, whose heads 2, 4, 8 or 16 devices can share.

    ValueError if `heads` does not divide `width`.
    """
    if width % heads:
        raise ValueError(f"heads = {heads}: must divide width = {width}")
    head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False))
    made = nn.Sequential(Embedding(vocabulary, sequence, width), *(Block(width, heads) for _ in range(layers)), head)
    for layer in made.modules():
        if isinstance(layer, nn.Linear | nn.Embedding):
            nn.init.normal_(layer.weight, std=INIT_STD)
    return made


def batch(size: int, seed: int, *, sequence: int = 1024, vocabulary: int = 50304) -> tuple[Tensor, Tensor]:
    """(size, sequence) random tokens, and the token that follows each of them."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocabulary, (size, sequence + 1), generator=generator)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class Text(Dataset[tuple[Tensor, Tensor]]):
    """Consecutive pieces of one array of tokens, as of a memory-mapped file, and the token that follows each."""

    def __init__(self, tokens: Tensor, sequence: int) -> None:
        self.tokens, self.sequence = tokens, sequence

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.sequence

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        start = index * self.sequence
        piece = self.tokens[start : start + self.sequence + 1].long()
        return piece[:-1], piece[1:]


def dataset(*, sequence: int = 1024, vocabulary: int = 50304) -> Text:
    """Random tokens, kept in four bytes each."""
    return Text(torch.randint(vocabulary, (max(TEXT, 64 * sequence) + 1,), dtype=torch.int32), sequence)


def loss(scores: Tensor, tokens: Tensor) -> Tensor:
    """Cross-entropy, the mean over all tokens."""
    return functional.cross_entropy(at_least_float32(scores.flatten(0, 1)), tokens.flatten())


def blocks(model: nn.Module) -> list[nn.Module]:
    """The embedding, the transformer's blocks, and the head."""
    return list(model.children())


def tensor_plan(model: nn.Module) -> dict[str, str]:
    """In every block, heads and hidden units are divided; the sums come after `out` and `down`."""
    plan = {}
    for name, layer in model.named_children():
        if isinstance(layer, Block):
            for part in ("attention.query", "attention.key", "attention.value", "up"):
                plan[f"{name}.{part}"] = "column"
            plan[f"{name}.attention.out"] = plan[f"{name}.down"] = "row"
    return plan
