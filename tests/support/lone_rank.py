"""The only rank of a launch, on the CPU, in this process."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from scalecard.distributed import Layout
from scalecard.hardware.device_timestamps import ClockMark


@dataclass
class LoneRank:
    """What a RankContext offers, with nobody to agree with."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    world_size: int = 1
    rank: int = 0
    leads: bool = True
    alone: bool = True
    spans_nodes: bool = False
    layout: Layout = field(default_factory=lambda: Layout(1))
    control: Any = None  # no process group: PyTorch then works without ranks
    failed: Mapping[str, Any] = field(default_factory=dict)
    begin: Callable[[str], object] = bool

    def synchronize(self) -> None:
        """On a CPU work is done when its call returns."""

    def attempted(self, error: Exception | None) -> None:
        """Nobody who would wait."""

    def barrier(self) -> None:
        """Nobody to wait for."""

    def mark(self, clock: Callable[[], int]) -> ClockMark:
        now = clock()
        return ClockMark(lambda: now)

    def all_gather(self, value: Any) -> list[Any]:
        return [value]

    def maximum(self, values: list[float]) -> list[float]:
        return values
