"""The subjects that several experiments time: training steps that change parameters."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from scalecard.measuring.bench import Synchronised
from scalecard.measuring.proof import Change, Trained, steps_like
from scalecard.measuring.variant import Subject, Work
from scalecard.records.record import Check


def training(
    what: str,
    work: Work,
    state: Callable[[], Sequence[Tensor]],
    expected: Callable[[], Trained | Change],
    *,
    times: int,
    devices: Iterable[Synchronised],
    counts: Mapping[str, float],
    compared: Callable[[], Sequence[Tensor]] | None = None,
    **more: Any,
) -> Subject:
    """Work that trains: `times` calls of it must leave what is expected in `compared`, which is its state by default.

    With times = 0, nothing is compared: the builder's work was, at other settings. `more` goes to the Subject.
    """
    wait = partial(_wait, list(devices))

    def prove() -> Iterable[Check]:
        if times == 0:
            return ()
        return steps_like(what, work, times=times, synchronize=wait, state=compared or state, expected=expected())

    return Subject(work=work, prove=prove, expected=counts, state=state, **more)


def _wait(devices: Sequence[Synchronised]) -> None:
    for device in devices:
        device.synchronize()
