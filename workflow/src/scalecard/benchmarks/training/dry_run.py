"""Tries a strategy before it is timed: does it work here, and what does it need of the GPUs' memory?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from scalecard.benchmarks.training.reference_cache import References, Setting
from scalecard.benchmarks.training.strategy import STEP, CannotBe, StrategyBuilder
from scalecard.distributed.context import RankContext
from scalecard.hardware.devices import Device
from scalecard.hardware.failures import first_line, in_one_line, reason_of
from scalecard.hardware.gpu_memory import empty_cache
from scalecard.hardware.memory import is_out_of_memory
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.timer import Bench, Synchronised
from scalecard.records.record import Case, Reason, Record

ACCEPTED, UNABLE, OUT_OF_MEMORY = 0.0, 1.0, 2.0
USABLE = 0.95  # of a GPU's memory; NCCL and cuBLAS take some of it later


@dataclass(frozen=True)
class Trial:
    """Why a strategy cannot be used or, in bytes of the fullest GPU of any rank, what it needs; 0 without GPUs.

    `resident` stays between steps, `peak` is the most within one, with all that is resident. The `first` step took so
    many seconds on the slowest rank: in it everything is compiled.
    """

    resident: float = 0
    peak: float = 0
    refused: str = ""
    out_of_memory: bool = False
    first: float = field(default=0, compare=False)

    def record(self, case: Case, metric: str = STEP) -> Record | None:
        """Of a strategy that cannot be used: failed if the memory is too small, skipped otherwise."""
        if self.out_of_memory:
            return Record.failed(case, self.refused, reason=Reason.OUT_OF_MEMORY, metric=metric)
        return Record.skipped(case, self.refused, metric=metric) if self.refused else None


@dataclass(frozen=True)
class Trials:
    """The ranks and devices that try together; all ranks take part and agree."""

    ctx: RankContext
    devices: Sequence[Synchronised]
    references: References

    def of(self, strategy: StrategyBuilder, at: Setting) -> Trial:
        """Two steps at a setting; without GPUs one."""
        reason, refuse, needs = "", ACCEPTED, (0.0, 0.0, 0.0)
        try:
            strategy.refuse_uneven(at)
            strategy.suits(at)
            needs = self._needs(lambda: strategy.build(self.references, at))
        except Exception as error:  # whatever a library says of a model that it was not made for
            if reason_of(error) is Reason.DEVICE_FAULT:
                raise
            reason, refuse = _said(error), OUT_OF_MEMORY if is_out_of_memory(error) else UNABLE
            self._clear()
        empty_cache()
        everywhere = self.ctx.all_gather((refuse, reason, *needs))
        worst, said, *_ = max(everywhere, key=lambda one: one[0])  # the first of those
        if worst != ACCEPTED:
            return Trial(refused=said, out_of_memory=worst == OUT_OF_MEMORY)
        resident, peak, first = (max(one[index] for one in everywhere) for index in (2, 3, 4))
        return Trial(resident, peak, first=first)

    def _clear(self) -> None:
        """Wait for what else failed work has left, or the next would be blamed for it; raise what a GPU reports."""
        try:
            Bench(self.devices, self.ctx).synchronize()
        except Exception as left:
            if reason_of(left) is Reason.DEVICE_FAULT:
                raise

    def _needs(self, build: Callable[[], Subject]) -> tuple[float, float, float]:
        """Bytes that stay, the most in the second step, and the first one's seconds: it also makes what stays.

        What stays is what the allocator keeps once its cache is empty: with the pool that a recorded graph has to
        itself, whose memory counts as allocated while it is recorded, and not when it is replayed.
        """
        bench = Bench(self.devices, self.ctx)
        empty_cache()
        allocated, reserved = (
            self._each(torch.accelerator.memory_allocated),
            self._each(torch.accelerator.memory_reserved),
        )
        subject = build()
        first = Bench(self.devices).block(subject.work, 1).own  # without ranks: one that cannot take it lets none wait
        if not self.gpus:
            return 0.0, 0.0, first
        empty_cache()
        resident = _most_over(self._each(torch.accelerator.memory_reserved), reserved)
        for index in self.gpus:
            torch.accelerator.reset_peak_memory_stats(index)
        subject.work()
        bench.synchronize()
        return resident, max(resident, _most_over(self._each(torch.accelerator.max_memory_allocated), allocated)), first

    def _each(self, look: Callable[[int], int]) -> list[int]:
        return [look(index) for index in self.gpus]

    def warm_up(self) -> None:
        """cuBLAS takes its workspaces once in a process, from what a first trial would be charged for."""
        for index in self.gpus:
            x = torch.ones(8, 8, device=torch.device(self.ctx.device.type, index), requires_grad=True)
            (x @ x).sum().backward()

    @property
    def gpus(self) -> list[int]:
        """The GPUs that this process uses."""
        if self.ctx.device.type == "cpu":
            return []
        return [device.index for device in self.devices if isinstance(device, Device)] or [self.ctx.device.index or 0]

    def free(self) -> float:
        """Bytes that can still be used on the fullest GPU of any rank; without GPUs there is no limit."""
        if not self.gpus:
            return float("inf")
        (least,) = self.ctx.maximum([-min(map(_free, self.gpus))])
        return -least


def _free(index: int) -> float:
    free, total = torch.accelerator.get_memory_info(index)
    cached = torch.accelerator.memory_reserved(index) - torch.accelerator.memory_allocated(index)
    return free + cached - (1 - USABLE) * total


def _most_over(after: Sequence[int], before: Sequence[int]) -> float:
    return float(max(now - then for now, then in zip(after, before, strict=True)))


def _said(error: Exception) -> str:
    """Errors of ours explain themselves, and too little memory is the reason that the record has."""
    return first_line(error) if isinstance(error, CannotBe) or is_out_of_memory(error) else in_one_line(error)
