"""The subjects that several experiments time: training steps that change parameters."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from scalecard import progress
from scalecard.measuring.case_variant import Subject, Work
from scalecard.measuring.proof import Change, Trained, steps_like
from scalecard.measuring.timer import Synchronised
from scalecard.records.record import Check


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Precision of a setting: float64 for exact proofs, otherwise as timed."""

    exact: bool = False

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64 if self.exact else torch.float32


def training(
    where: str,
    work: Work,
    state: Callable[[], Sequence[Tensor]],
    expected: Callable[[], Trained | Change],
    *,
    times: int,
    steps: int,
    devices: Iterable[Synchronised],
    counts: Mapping[str, float],
    settling: int = 0,
    compared: Callable[[], Sequence[Tensor]] | None = None,
    **more: Any,
) -> Subject:
    """Work that trains: `times` calls of it must leave what is expected in `compared`, which is its state by default.

    These calls take `steps` steps; with times = 0, nothing is compared: the builder's work was, at other settings.
    After so many further calls as `settling` it does what it goes on to do. `where` are the check's words for what was
    built, and `more` goes to the Subject.
    """
    wait = partial(_wait, list(devices))

    def prove() -> Iterator[Check]:
        if times == 0:
            return
        wanted, after = expected(), progress.counted(steps, "step")
        what = f"{where}: {'change in' if isinstance(wanted, Change) else 'parameters after'} {after}"
        yield from steps_like(what, work, times=times, synchronize=wait, state=compared or state, expected=wanted)
        for _ in range(settling):
            work()
            wait()

    return Subject(work=work, prove=prove, expected=counts, state=state, **more)


def _wait(devices: Sequence[Synchronised]) -> None:
    for device in devices:
        device.synchronize()
