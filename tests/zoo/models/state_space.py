"""A small state-space model, which computes its recurrence in float32 whatever its inputs are, as Mamba does."""

import torch
from torch import nn, randn


class Scan(nn.Module):
    def __init__(self, width=16, states=4):
        super().__init__()
        self.into, self.out = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.step, self.mix = nn.Linear(width, width), nn.Linear(width, 2 * states)
        self.decay = nn.Parameter(torch.log(torch.arange(1.0, states + 1).repeat(width, 1)))

    def forward(self, x):
        y, gate = self.into(x).chunk(2, -1)
        step = nn.functional.softplus(self.step(y).float())
        b, c = self.mix(y).float().chunk(2, -1)
        decay = torch.exp(step.unsqueeze(-1) * -self.decay.float().exp())
        driven = (step * y.float()).unsqueeze(-1) * b.unsqueeze(-2)
        state, outs = torch.zeros_like(driven[:, 0]), []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + driven[:, t]
            outs.append((state * c[:, t].unsqueeze(-2)).sum(-1))
        return x + self.out(torch.stack(outs, 1).to(x.dtype) * nn.functional.silu(gate))


def model():
    return nn.Sequential(Scan(), Scan(), nn.Flatten(), nn.Linear(16 * 12, 4))


def batch(size, seed):
    x = randn(size, 12, 16, generator=torch.Generator().manual_seed(seed))
    return x, x[:, 0, :4].argmax(1)


loss = nn.CrossEntropyLoss()
