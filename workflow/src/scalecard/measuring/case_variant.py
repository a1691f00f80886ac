"""One of the pieces of work that are timed side by side, how it is built for proof and timing, and its samples.

The same builder makes what is proven (small, in float64, also on more devices than are timed) and what is timed, and
what is timed is checked itself as well. So nothing can be timed that was not proven.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import torch
from torch import Tensor

from scalecard.hardware.device_timestamps import Place
from scalecard.hardware.devices import Device
from scalecard.records.axes import Case
from scalecard.records.record import Check, Count, HardwareState, Reason, Record, Telemetry, Unit

Work = Callable[[], object]
NOT_ASKED = "only training steps and epochs are measured over a second"


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
    What `optimizers` keep from step to step is counted.
    `test` scores the test images and returns the accuracy. Once timing is over, `after` checks what must hold, and
    `agreeing` returns the tensors that must be the same on all ranks, bit for bit.

    Work that takes several batches in `turns` takes the same one while `hold` says so: a sample is the mean over all.
    """

    work: Work
    prove: Callable[[], Iterable[Check]]
    expected: Mapping[str, float] = field(default_factory=dict)
    state: Callable[[], Sequence[Tensor]] = tuple
    order: torch.Generator | None = None
    module: torch.nn.Module | None = None
    optimizers: Sequence[torch.optim.Optimizer] = ()
    test: Callable[[], float] | None = None
    after: Callable[[], Iterable[Check]] = tuple
    agreeing: Callable[[], Iterable[Tensor]] = tuple
    turns: int = 1
    hold: Callable[[int | None], object] = bool

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

    def call(self) -> object:
        made = self.subject.work()
        self.calls += 1  # not one that runs out of memory on its way
        return made


@dataclass(kw_only=True)
class Timing:
    """The samples of one variant, one per round: seconds per call until enqueued, and until complete.

    Both are the slowest rank's; `own` is how long this rank took until complete. `prepared` is None if it failed
    before it could be timed, or if it was `left_out`, and why. `accuracies` has one value per epoch. Of work that
    takes several batches in turn, `by_turn` has what a call takes with each, per round. `joules`
    were used by `metered` calls; if there are none, `no_joules` says why.
    """

    variant: Variant
    rounds_id: str = ""
    prepared: Prepared | None = None
    left_out: str = ""
    iterations: int = 1
    enqueue: list[float] = field(default_factory=list)
    completion: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    by_turn: list[list[float]] = field(default_factory=list)
    stopped: str = ""
    failure: str = ""
    reason: Reason = Reason.ERROR
    joules: float | None = None
    metered: int = 0
    no_joules: str = NOT_ASKED
    measured_again: str = ""
    state: HardwareState | None = None

    @property
    def able(self) -> Prepared | None:
        """What was prepared, unless it has failed."""
        return None if self.failure else self.prepared

    def again(self, rounds_id: str) -> "Timing":
        """The same variant, as it was prepared, without samples."""
        again = Timing(variant=self.variant, rounds_id=rounds_id, prepared=self.prepared, left_out=self.left_out)
        again.failure, again.reason = self.failure, self.reason
        return again

    def fail(self, note: str, reason: Reason) -> None:
        """Drop the samples: the variant ran out of memory, or what it computed is wrong."""
        self.failure, self.reason = note, reason
        for tensor in self.prepared.subject.parameters() if self.prepared else ():
            tensor.grad = None  # a half-finished step leaves some, and variants may share their parameters
        for samples in (self.enqueue, self.completion, self.own, self.accuracies):
            samples.clear()

    def record(self, metric: str = "time") -> Record:
        """The completion times with what was proven and counted, or why there are none."""
        made = self._absent(metric) or self._times(metric, self.completion)
        return replace(made, checks=self.able.checks, work=self.able.work) if self.able else made

    def enqueue_record(self, metric: str = "enqueue_time") -> Record:
        """The enqueue times; what was proven is recorded with the completion times."""
        return self._absent(metric) or self._times(metric, self.enqueue)

    def accuracy_record(self) -> Record:
        """The share of test images that were classified correctly, after each epoch."""
        return self._absent("accuracy", "fraction") or Record(
            case=self.variant.case, metric="accuracy", unit="fraction", samples=[self.accuracies]
        )

    def _absent(self, metric: str, unit: Unit = "s") -> Record | None:
        """A skipped or failed record, if there are no samples."""
        if self.left_out:
            return Record.skipped(self.variant.case, self.left_out, reason=Reason.NO_TIME, metric=metric, unit=unit)
        if not self.able:
            return Record.failed(self.variant.case, self.failure, reason=self.reason, metric=metric, unit=unit)
        return None

    def _times(self, metric: str, samples: list[float]) -> Record:
        return Record(case=self.variant.case, metric=metric, unit="s", samples=[samples], telemetry=[self.telemetry])

    @property
    def telemetry(self) -> Telemetry:
        """How these samples were taken; joules per call if the GPUs count them."""
        return Telemetry(
            rounds_id=self.rounds_id,
            iterations=self.iterations,
            stopped=self.stopped,
            enqueue=median(self.enqueue) if self.enqueue else None,
            joules=self.joules / self.metered if self.joules is not None and self.metered else None,
            no_joules=self.no_joules,
            measured_again=self.measured_again,
            state=self.state,
        )
