"""A GPU whose memory is made up, and the only rank, which has it; nothing is computed."""

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
from scalecard.benchmarks.training import memory_trials
from scalecard.benchmarks.training.strategy import References, Setting
from scalecard.distributed import Layout
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.records.record import Record

MIB = 2.0**20
GPU = torch.device("cuda", 0)


@dataclass
class Rank:
    """The only rank, on a GPU."""

    device: torch.device = GPU
    rank: int = 0
    world_size: int = 1
    leads: bool = True
    layout: Layout = field(default_factory=partial(Layout, 1))
    failed: Mapping[str, Any] = field(default_factory=dict)
    begin: Callable[[str], object] = bool

    def attempted(self, error: Exception | None) -> None:
        """Nobody who would wait."""

    def synchronize(self) -> None:
        """Nothing was submitted."""

    def all_gather(self, value: Any) -> list[Any]:
        return [value]

    def maximum(self, values: list[float]) -> list[float]:
        return values


class Gpu:
    """Of 1000 MiB that can be used; a strategy keeps 100 and takes one more for each sample, as it is timed."""

    def __init__(self, patch: pytest.MonkeyPatch, *, in_float64: float = 200) -> None:
        self.most = 0.0
        self.in_float64, self.tried = in_float64, list[int]()
        self.built = list[weakref.ref[Any]]()
        for known in ("memory_allocated", "memory_reserved"):
            patch.setattr(torch.accelerator, known, lambda index: self.now)
        patch.setattr(torch.accelerator, "max_memory_allocated", lambda index: self.most)
        patch.setattr(torch.accelerator, "reset_peak_memory_stats", lambda index: setattr(self, "most", self.now))
        patch.setattr(memory_trials, "_free", lambda index: 1000 * MIB - self.now)
        patch.setattr(memory_trials.Trials, "warm_up", lambda trials: None)

    @property
    def now(self) -> float:
        """What was built is given back with its last reference."""
        return 100 * MIB * sum(ref() is not None for ref in self.built)

    def build(self, references: References, at: Setting) -> Subject:
        batch = at.workload.batch_size
        needed = self.in_float64 if at.workload.exact else 100.0 + batch
        if not at.workload.exact:
            self.tried.append(batch)
        if needed > 1000:
            raise torch.OutOfMemoryError("CUDA out of memory.")

        def step() -> None:
            self.most = max(self.most, needed * MIB)

        self.built.append(weakref.ref(step))
        return Subject(work=step, prove=list)


@dataclass
class Timed:
    """What time_rounds would have found."""

    variant: Variant
    by_turn: tuple[list[float], ...] = ()

    def record(self, metric: str) -> Record:
        return Record(case=self.variant.case, metric=metric, unit="s", samples=[[1.0]])
