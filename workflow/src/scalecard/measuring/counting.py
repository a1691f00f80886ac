"""What one call of a subject does: operations, bytes, micro-batches and updates, counted on the object that is timed.

The operations are seen by PyTorch's dispatcher, below any code of ours, in the calling thread, in CPU workers and in
autograd. The optimiser's steps are seen by the version that every in-place change of a parameter counts up.

    FLOPs                            products and convolutions, forward and backward (torch.utils.flop_counter)
    float32 FLOPs                    of them those whose factors are in float32
    recomputed FLOPs                 of them those of forwards that a backward runs again
    channels-last FLOPs              of them those of convolutions of images that lie channels last (NHWC)
    all-reduces, all-reduced bytes   of this rank, as they are sent: after compression
    collectives, collective bytes    of this rank, of any kind; the largest tensor that one has
    sent bytes                       from this rank to another one
    read bytes, written bytes        by reductions and fills, and from files (count)
    copied bytes                     by copies, on any device
    received bytes                   handed from one device of this process to another, all devices together
    received by the busiest device   the same, the largest of any device
    forwards, samples                calls of the subject's module, and the rows of their inputs
    replicas                         copies of a module that go forward, each on a device (count)
    loaded samples                   rows of the batches that a loop takes from a loader (count)
    synchronisations                 times that a device is waited for, before the call returns
    updates                          in-place changes of every parameter
    fused updates                    calls of the optimiser's one kernel for all parameters, none of whose in-place
                                     changes PyTorch counts
    optimizer bytes                  that this rank's optimisers keep from step to step: momentum, and mean squares
    parameter bytes                  of all parameters that were changed, replicas and slices included
    sharded units                    modules whose parameters are gathered together (FSDP2)
    test FLOPs                       of scoring the test images once
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from scalecard.hardware import devices
from scalecard.measuring.case_variant import Subject, local, version
from scalecard.records.record import Count

BYTES = (
    *("all-reduced bytes", "collective bytes", "sent bytes", "read bytes", "written bytes", "copied bytes"),
    *("received bytes", "received by the busiest device", "parameter bytes", "optimizer bytes"),
)
# The others are counted one by one.
OPERATIONS = ("FLOPs", "float32 FLOPs", "recomputed FLOPs", "channels-last FLOPs", "test FLOPs")
UNITS: dict[str, Literal["FLOP", "B"]] = {**dict.fromkeys(OPERATIONS, "FLOP"), **dict.fromkeys(BYTES, "B")}
UPDATES = ("updates", "fused updates")  # one of them is known, unless the optimiser is a user's own
# Operators as Python sees them, all made before any is counted and kept: PyTorch makes each when a mode first meets it,
# but two threads that meet one at once make two, of which one is freed while the dispatcher goes on to use it.
_OPERATORS = [
    getattr(getattr(getattr(torch.ops, space), operator), overload or "default")
    for space, _, name in (each.partition("::") for each in torch._C._dispatch_get_all_op_names())
    if space in ("aten", "c10d")
    for operator, _, overload in (name.partition("."),)
]
COLLECTIVE_OPERATORS = ("c10d.all", "c10d._all", "c10d._reduce_scatter", "c10d.broadcast")


class Tally:
    """Sums by name, from any thread."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._received: dict[int, float] = defaultdict(float)
        self._lock = threading.Lock()

    def add(self, name: str, value: float) -> None:
        with self._lock:
            self._sums[name] += value

    def receive(self, device: int, value: float) -> None:
        """Bytes that a device receives."""
        with self._lock:
            self._received[device] += value

    def sums(self) -> dict[str, float]:
        """The sums so far; bytes by receiving device become their total and their largest."""
        received = self._received.values()
        busiest = {"received by the busiest device": max(received, default=0.0)}
        return {**self._sums, "received bytes": sum(received), **busiest}


class _Operations(TorchDispatchMode):
    """Adds every operation of one thread to a tally."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tally = tally

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code runs as ever, unseen. Otherwise plain code would and, in PyTorch 2.11, would ever after."""
        return True

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        name = str(function)
        if function.overloadpacket in flop_registry:
            operations = flop_registry[function.overloadpacket](*args, **(kwargs or {}), out_val=out)
            self.tally.add("FLOPs", operations)
            if next(arg.dtype for arg in args if isinstance(arg, Tensor)) == torch.float32:
                self.tally.add("float32 FLOPs", operations)
            if getattr(_recomputing, "is_on", False):
                self.tally.add("recomputed FLOPs", operations)
            if _lies_channels_last(args[0]):
                self.tally.add("channels-last FLOPs", operations)
        elif name.startswith(COLLECTIVE_OPERATORS):
            self._collective(name, args)
        elif name.startswith("c10d.send."):
            self.tally.add("sent bytes", _bytes(args[0]))
        elif name.startswith(("aten._to_copy.", "aten.copy_.")):
            self.tally.add("copied bytes", _bytes(out))
        elif name.startswith(("aten._fused_sgd_.", "aten._fused_adamw_.")):
            self.tally.add("fused updates", 1)
        elif name.startswith("aten.amax."):
            self.tally.add("read bytes", _bytes(args[0]))
        elif name.startswith("aten.fill_."):
            self.tally.add("written bytes", _bytes(out))
        return out

    def _collective(self, name: str, args: tuple[Any, ...]) -> None:
        self.tally.add("collectives", 1)
        self.tally.add("collective bytes", max(_bytes(found) for found in args if isinstance(found, Tensor | list)))
        if name.startswith(("c10d.allreduce_.", "c10d.allreduce_coalesced_.")):
            self.tally.add("all-reduces", 1)
            self.tally.add("all-reduced bytes", _bytes(args[0]))


def _lies_channels_last(factor: Any) -> bool:
    """Whether it is images in this layout and, if they have several channels and pixels, in no other."""
    images = isinstance(factor, Tensor) and factor.dim() == 4
    return images and factor.is_contiguous(memory_format=torch.channels_last) and not factor.is_contiguous()


def _bytes(tensors: Any) -> int:
    """Of a tensor, or of all that there are, which an all-gather has in lists of lists."""
    if not isinstance(tensors, Tensor):
        return sum(map(_bytes, tensors))
    if tensors.layout is torch.sparse_coo:
        return tensors._indices().nbytes + tensors._values().nbytes
    return tensors.nbytes


_recomputing = threading.local()


@contextmanager
def _recomputing_here() -> Iterator[None]:
    """What this thread computes meanwhile was computed before."""
    _recomputing.is_on = True
    try:
        yield
    finally:
        _recomputing.is_on = False


_counting: list[Tally] = []  # what counts at present, the innermost last


def count(name: str, value: float) -> None:
    """Add what PyTorch does not see to what is being counted, if anything is."""
    if _counting:
        _counting[-1].add(name, value)


@contextmanager
def counting(counted_module: torch.nn.Module | None = None) -> Iterator[Tally]:
    """Count what this thread and the devices' workers do meanwhile."""
    tally = Tally()

    def forward(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        if module is counted_module:
            tally.add("forwards", 1)
            tally.add("samples", len(inputs[0]))

    hook = torch.nn.modules.module.register_module_forward_pre_hook(forward)
    _counting.append(tally)
    try:
        waited = partial(tally.add, "synchronisations", 1)
        observer = devices.Observer(lambda: _Operations(tally), tally.receive, _recomputing_here, waited)
        with devices.observed(observer), _Operations(tally):
            yield tally
    finally:
        _counting.pop()
        hook.remove()


def operations(work: Callable[[], object], names: Iterable[str] = ("FLOPs",)) -> dict[str, float]:
    """What one call in this thread computes, by these names of operations."""
    with counting() as tally:
        work()
    sums = tally.sums()
    return {name: sums.get(name, 0.0) for name in names}


def flops(work: Callable[[], object]) -> float:
    """The FLOPs of one call in this thread."""
    return operations(work)["FLOPs"]


def optimizer_states(optimizers: Iterable[torch.optim.Optimizer]) -> Iterator[Tensor]:
    """What they keep for each value of a parameter, of this rank's part of it; not how many steps there were."""
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            shaped = (each for each in state.values() if isinstance(each, Tensor) and each.shape == parameter.shape)
            yield from map(local, shaped)


def counted(subject: Subject, synchronize: Callable[[], None]) -> list[Count]:
    """One call of the work, and one scoring of the test images, beside what is expected of them."""
    before = subject.versions()
    with counting(subject.module) as tally:
        kept = subject.work()
        waits = tally.sums().get("synchronisations", 0.0)  # the next one is ours
        synchronize()
    del kept
    seen = {**tally.sums(), "synchronisations": waits}
    updates = subject.updates_since(before) or {0}  # nothing is trained
    seen["updates"] = updates.pop() if len(updates) == 1 else -1.0
    seen["parameter bytes"] = _bytes(
        tensor for tensor, then in zip(subject.parameters(), before, strict=True) if version(tensor) != then
    )
    modules = subject.module.modules() if subject.module else ()
    seen["sharded units"] = sum(hasattr(module, "set_reshard_after_forward") for module in modules)
    seen["optimizer bytes"] = _bytes(optimizer_states(subject.optimizers))
    if subject.test:
        with counting() as scoring:
            subject.test()
        seen["test FLOPs"] = scoring.sums().get("FLOPs", 0.0)
    return [
        Count(name=name, counted=seen.get(name, 0.0), expected=value, unit=UNITS.get(name, ""))
        for name, value in subject.expected.items()
    ]
