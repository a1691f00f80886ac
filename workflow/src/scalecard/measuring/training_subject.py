"""The subjects that several experiments time: work that trains, proven by what it does to the parameters."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scalecard import progress
from scalecard.measuring.case_variant import Subject, Work
from scalecard.measuring.proof import Change, Trained, same_change, same_parameters
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
    waited_for, tensors = list(devices), compared or state

    def call(times: int) -> None:
        for _ in range(times):
            work()
            for device in waited_for:
                device.synchronize()

    def prove() -> Iterator[Check]:
        wanted, after = expected(), progress.counted(steps, "step")
        before = [tensor.detach().to("cpu", copy=True) for tensor in tensors()] if isinstance(wanted, Change) else []
        call(times)
        if isinstance(wanted, Change):
            yield same_change(f"{where}: change in {after}", before, tensors(), wanted)
        else:
            yield same_parameters(f"{where}: parameters after {after}", tensors(), wanted)
        call(settling)

    return Subject(work=work, prove=prove if times else tuple, expected=counts, state=state, **more)
