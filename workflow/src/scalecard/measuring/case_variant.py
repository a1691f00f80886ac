"""One of the pieces of work that are timed side by side, and how it is built for proof and for timing.

The same builder makes what is proven (small, in float64, also on more devices than are timed) and what is timed, and
what is timed is checked itself as well. So nothing can be timed that was not proven.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from scalecard.hardware.device_timestamps import Place
from scalecard.hardware.devices import Device
from scalecard.records.record import Case, Check, Count

Work = Callable[[], object]


def _nothing() -> Sequence[Any]:
    return ()


def local(tensor: Tensor) -> Tensor:
    """What this rank keeps of a tensor that may be divided over ranks: a DTensor, whose import takes two seconds."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def version(tensor: Tensor) -> int:
    """How often a tensor was changed in place.

    Of a DTensor one operation for each counts up the DTensor's, and CUDA's kernels for many tensors at once (foreach)
    the local tensor's. Source: ATen/native/cuda/ForeachBinaryOpList.cu, increment_version.
    """
    return tensor._version + (tensor._local_tensor._version if hasattr(tensor, "_local_tensor") else 0)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a builder makes: the callable that is timed, and what shows that it does what it should.

    `prove` drives `work` itself, at least once, and compares what it did with an independent reference. `expected` has
    the closed form of what one call does, by the names in counting.py. `state` returns the tensors that the work
    changes, all parameters first; they are put back after proving and counting. `order` draws the order of images.
    Of `module`, the first that a sample goes through, the calls are counted.
    `test` scores the test images and returns the accuracy. Once timing is over, `after` checks what must hold, and
    `agreeing` returns the tensors that must be the same on all ranks, bit for bit.
    """

    work: Work
    prove: Callable[[], Iterable[Check]]
    expected: Mapping[str, float] = field(default_factory=dict)
    state: Callable[[], Sequence[Tensor]] = _nothing
    order: torch.Generator | None = None
    module: torch.nn.Module | None = None
    test: Callable[[], float] | None = None
    after: Callable[[], Iterable[Check]] = _nothing
    agreeing: Callable[[], Iterable[Tensor]] = _nothing

    def parameters(self) -> list[Tensor]:
        """The tensors of the state that are trained."""
        return [tensor for tensor in self.state() if tensor.requires_grad]

    def versions(self) -> list[int]:
        """How often each parameter was changed in place so far, which PyTorch itself counts."""
        return [version(parameter) for parameter in self.parameters()]

    def updates_since(self, versions: list[int]) -> set[int]:
        """How often the parameters were changed since then; one number, unless some were left out."""
        return {now - then for now, then in zip(self.versions(), versions, strict=True)}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """The case that its records carry, and how its work is built.

    `name` is for the terminal and is unique among the variants of one measurement. `build` makes a Subject of a
    setting: of each of `proven_at`, which are proven and dropped, and of `timed_at`. `proven` is what was proven of it
    before, on more ranks. `devices` are those that the work uses; they are given if its peak memory is measured too.
    `place` marks its own time, if it runs beside others. If the energy of a call means nothing, it is not `metered`.
    """

    name: str
    case: Case
    build: Callable[[Any], Subject]
    timed_at: Any = None
    proven_at: Sequence[Any] = ()
    proven: Sequence[Check] = ()
    devices: Sequence[Device] = ()
    place: Place | None = None
    metered: bool = True


@dataclass(kw_only=True)
class Prepared:
    """A variant's subject, ready to be timed: what was proven of it, and what one call of it does."""

    variant: Variant
    subject: Subject
    checks: list[Check]
    work: list[Count]
    initial: float
    versions: list[int] = field(default_factory=list)
    calls: int = 0

    def begin(self) -> None:
        """Count calls and updates from here on."""
        self.calls, self.versions = 0, self.subject.versions()

    def call(self) -> object:
        """One call of the work."""
        made = self.subject.work()
        self.calls += 1  # not one that runs out of memory on its way
        return made

    @property
    def updates(self) -> float:
        """How often one call changes each parameter."""
        return next((count.expected for count in self.work if count.name == "updates"), 0.0)
