"""A decoder-only transformer as most are today: RMSNorm, rotary positions, grouped queries and SwiGLU.

The defaults are Llama 3.1 8B. Sources: Dubey et al., The Llama 3 Herd of Models (2024); Su et al., RoFormer (2021);
Ainslie et al., GQA (2023); Shazeer, GLU Variants Improve Transformer (2020).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

UNIT = "tokens"
THETA = 500_000.0  # the longest wavelength of rotary positions, in tokens over 2 pi


def rotated(x: Tensor) -> Tensor:
    """(n, heads, sequence, head width), each pair of values turned by an angle that grows with the position."""
    half = x.shape[-1] // 2
    rates = THETA ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)[:, None] * rates
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], dim=-1)


class Attention(nn.Module):
    """Causal; several queries share a key and a value. Of the heads, a device may have a share."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.each, self.shared = width // heads, heads // groups
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(width, groups * self.each, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.each)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        k, v = (values.repeat_interleave(self.shared, dim=1) for values in (rotated(k), v))
        mixed = functional.scaled_dot_product_attention(rotated(q), k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.attention = Attention(width, heads, groups)
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Sequential):
    def init_weights(self) -> None:
        for layer in self.modules():
            if isinstance(layer, nn.RMSNorm):
                layer.reset_parameters()
            elif isinstance(layer, nn.Linear | nn.Embedding):
                nn.init.normal_(layer.weight, std=0.02)


def model(
    layers: int = 32, width: int = 4096, heads: int = 32, groups: int = 8, hidden: int = 14336, vocabulary: int = 128256
) -> nn.Module:
    """Without data: who trains it calls init_weights(), under FSDP only for the shards of each rank."""
    with torch.device("meta"):
        head = nn.Sequential(nn.RMSNorm(width, eps=1e-5), nn.Linear(width, vocabulary, bias=False))
        middle = [Block(width, heads, groups, hidden) for _ in range(layers)]
        return Llama(nn.Embedding(vocabulary, width), *middle, head)


def batch(size: int, seed: int, sequence: int = 8192, vocabulary: int = 128256) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocabulary, (size, sequence + 1), generator=torch.Generator().manual_seed(seed))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def loss(scores: Tensor, tokens: Tensor) -> Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())


def blocks(model: nn.Module) -> list[nn.Module]:
    return list(model.children())


def tensor_plan(model: nn.Module) -> dict[str, str]:
    """In every block, heads and hidden units are divided; devices must divide the groups of heads."""
    divided = {"attention.query": "column", "attention.key": "column", "attention.value": "column"}
    divided |= {"attention.out": "row", "gate": "column", "up": "column", "down": "row"}
    own = [name for name, layer in model.named_children() if isinstance(layer, Block)]
    return {f"{name}.{part}": style for name in own for part, style in divided.items()}
