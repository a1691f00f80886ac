"""Attention with a mask of the most negative numbers of its type, as Hugging Face makes them."""

import torch
from torch import nn, randn


class Attention(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.qkv, self.out, self.head = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 4)

    def forward(self, given):
        x, present = given["x"], given["mask"]
        mask = (1 - present)[:, None, :] * torch.finfo(x.dtype).min
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / 4 + mask
        return self.head((x + self.out(scores.softmax(-1) @ v)).mean(1))


def model():
    return Attention()


def batch(size, seed):
    x = randn(size, 6, 16, generator=torch.Generator().manual_seed(seed))
    mask = torch.ones(size, 6)
    mask[::2, 4:] = 0
    return {"x": x, "mask": mask}, x[:, 0, :4].argmax(1)


loss = nn.CrossEntropyLoss()
