"""What a rank function gets: its device, its rank, the world size, and what the ranks agree on."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from scalecard.distributed import Layout
from scalecard.hardware import host
from scalecard.hardware.device_timestamps import ClockMark, EventMark, Mark
from scalecard.hardware.machine import Machine, threads_each
from scalecard.hardware.vendors.runtimes import float32_is_float32
from scalecard.records.record import Reason

HEARD_IN = timedelta(seconds=20)  # of all ranks that fail at the same, the last is not much later than the first
LAZY, UNBOUND = "-lazy", "-legacy"  # added to the name of a backend; not in PyTorch 2.11


@dataclass(eq=False)
class RankContext:
    """One rank of a launch, which is only itself; implements the Ranks protocol of measuring/shared_decisions.py."""

    rank: int
    world_size: int
    device: torch.device
    control: dist.ProcessGroup
    layout: Layout
    timeout: timedelta
    group: dist.ProcessGroup | None = None  # for collectives of the device's tensors; None: of all ranks
    failed: Mapping[str, tuple[str, Reason]] = field(default_factory=dict)  # in an earlier launch, by what was begun
    begin: Callable[[str], object] = bool  # notes what this rank does, so that a failure costs that alone; "": nothing

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, whose records are kept."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there is no other rank."""
        return self.world_size == 1

    @property
    def spans_nodes(self) -> bool:
        """Whether the launch covers several nodes."""
        return self.layout.nodes > 1

    def synchronize(self) -> None:
        """Wait for this rank's GPU; on a CPU work is done when its call returns."""
        torch.get_device_module(self.device).synchronize(self.device)

    def mark(self, clock: Callable[[], int]) -> Mark:
        """The point after everything submitted: on a GPU in the current stream, which waits for NCCL's."""
        if self.device.type != "cpu":
            return EventMark([torch.get_device_module(self.device).current_stream(self.device)])
        now = clock()
        return ClockMark(lambda: now)

    def __str__(self) -> str:
        return f"rank {self.rank}"

    def new_group(self, device: torch.device) -> dist.ProcessGroup:
        """A further process group of all ranks, with the same timeout, for collectives on this device of each rank.

        NCCL's groups are bound to one device per rank, and refuse the others.
        """
        return _joined(self._group(None, device))

    def unbound_group(self) -> dist.ProcessGroup:
        """A further process group of all ranks, for collectives on all devices of each rank.

        NCCL's groups are bound to one device, but for the kind that PyTorch had before.
        """
        return _joined(self._group(None, self.device, UNBOUND))

    def group_among(self, rows: Iterable[Sequence[int]], *, lazily: bool = False) -> dist.ProcessGroup:
        """A further group of this rank's row, for collectives of its device's tensors; all ranks must ask for all.

        On GPUs each pair of ranks has, `lazily`, a communicator and a stream of its own, so that what a rank gets from
        one of them does not queue behind what it sends to another one.
        """
        made = {tuple(row): self._group(list(row), self.device, LAZY if lazily else "") for row in rows}
        return next(_joined(group) for row, group in made.items() if self.rank in row)

    def among(self, ranks: Sequence[int]) -> "RankContext | None":
        """This rank among some of all, or None if it is not one of them; every rank must ask, in the same order."""
        group, control = self._group(list(ranks), self.device), self._group(list(ranks), torch.device("cpu"))
        if self.rank not in ranks:
            return None
        place, number = list(ranks).index(self.rank), len(ranks)
        return replace(self, rank=place, world_size=number, control=_joined(control), group=_joined(group))

    def _group(self, ranks: list[int] | None, device: torch.device, kind: str = "") -> object:
        """Of these ranks (None: all), by the device's backend, of a further `kind` if PyTorch has that of it.

        The timeout is that of this launch: groups that PyTorch makes itself, as for a mesh, wait for minutes.
        """
        backend = dist.get_default_backend_for_device(device)
        if dist.is_backend_available(backend + kind):
            backend += kind
        return dist.new_group(ranks, self.timeout, backend, device_id=None if kind == UNBOUND else _bound(device))

    def leave(self) -> None:
        """Give back what `among` made; all of its members do so."""
        for group in (self.group, self.control):
            dist.destroy_process_group(group)

    def barrier(self) -> None:
        """Wait for every rank."""
        dist.barrier(group=self.control)

    def attempted(self, error: Exception | None) -> None:
        """All ranks come here after what may fail, with their error; raises it on one whose others do not come.

        They wait for this rank inside of what it left, and would until the timeout, whose error would hide this one.
        """
        if self.alone:
            return
        try:
            here: Any = dist.barrier(self.control, async_op=True)
            here.wait(HEARD_IN if error else self.timeout)
        except RuntimeError as silence:
            raise (error or silence) from None

    def maximum(self, values: Sequence[float]) -> list[float]:
        """The element-wise maximum over ranks, by gloo, so as not to disturb NCCL's stream."""
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self.control)
        return [float(v) for v in tensor]

    def all_gather(self, value: Any) -> list[Any]:
        """Every rank's value, in rank order."""
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.control)
        return values


def join(
    machine: Machine,
    timeout: timedelta,
    layout: Layout,
    devices_each: int,
    failed: Mapping[str, tuple[str, Reason]] | None = None,
) -> RankContext:
    """Make this process a rank: choose its device, run next to it, and create the process groups.

    The default group of a rank with one GPU is NCCL's. A rank with several gets gloo's, and one of NCCL's per device by
    `new_group`: torch binds an NCCL group to cuda:LOCAL_RANK if nothing else is said, and new groups inherit that.
    """
    os.environ["TORCH_DIST_INIT_BARRIER"] = "1"  # or a rank that soon leaves a group closes it while others connect
    device = torch.device("cpu")
    float32_is_float32()
    if machine.emulated:
        torch.set_num_threads(threads_each(machine))
    else:
        device = torch.device(machine.kind, int(os.environ["LOCAL_RANK"]) * devices_each)
        host.bind(host.cores_of(range(device.index, device.index + devices_each)))
        torch.set_num_threads(min(torch.get_num_threads(), host.usable_cores()))
        torch.accelerator.set_device_index(device)
    bound = _bound(device) if devices_each == 1 else None
    dist.init_process_group(dist.get_default_backend_for_device(bound or "cpu"), timeout=timeout, device_id=bound)
    control = _joined(dist.new_group(backend="gloo", timeout=timeout))
    return RankContext(dist.get_rank(), dist.get_world_size(), device, control, layout, timeout, failed=failed or {})


def _joined(group: object) -> dist.ProcessGroup:
    assert isinstance(group, dist.ProcessGroup), "this rank is a member"
    return group


def _bound(device: torch.device) -> torch.device | None:
    """The device that a group of its backend is bound to; gloo's are to none."""
    return None if device.type == "cpu" else device
