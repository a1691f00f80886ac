"""What two_tower.py imports from its own folder."""

from torch import nn


def tower(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, width))
