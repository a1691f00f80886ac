"""NUMA: a process that drives GPUs runs on the cores next to them, because its memory and its copies then stay near.

torch.numa does the same for ranks, but needs numactl, and takes a rank's local number for that of its GPU.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from scalecard.hardware import vendors
from scalecard.hardware.optional_facts import Missing
from scalecard.hardware.vendors.protocol import Gpu

FEWEST = 4  # cores: a rank's launcher, autograd's thread, NCCL's proxy and the sampler would share fewer
PCI = Path("/sys/bus/pci/devices")
NODES = Path("/sys/devices/system/node")
THREADS = Path("/proc/self/task")


def node(gpu: Gpu) -> int:
    """The NUMA node of a GPU, inside a session; an error of Missing's if it is not known."""
    found = int(_read(gpu, "numa_node"))
    if found < 0:
        raise OSError("the kernel names no NUMA node")
    return found


def cores(gpu: Gpu) -> list[int]:
    """The cores next to a GPU that this process may use, inside a session; errors as in `node`, or if too few are."""
    near = _listed(_read(gpu, "local_cpulist"))
    allowed = os.sched_getaffinity(0)
    if len(near & allowed) < min(FEWEST, len(allowed)):
        raise OSError(f"{len(near & allowed)} of the cores next to it may be used, which is too few to run on")
    return sorted(near & allowed)


def _read(gpu: Gpu, fact: str) -> str:
    return (PCI / gpu.pci_address() / fact).read_text().strip()


def bind(indices: Sequence[int]) -> None:
    """Run all threads of this process on the cores next to these GPUs; where that is not known, they stay."""
    with vendors.session() as gpus:
        known = [Missing().ask("cores", cores, gpus[index]) for index in indices if index < len(gpus)]
    if known and all(known):
        _move(sorted({core for near in known for core in near}))


@contextlib.contextmanager
def near(indices: Sequence[int]) -> Iterator[None]:
    """The same while this runs; afterwards they may run where they could before, and so may ranks started then."""
    with _afterwards_as_before():
        bind(indices)
        yield


def nodes() -> dict[int, list[int]]:
    """The cores of each NUMA node that this process may use; nodes without one are left out."""
    found = {}
    for path in sorted(NODES.glob("node[0-9]*/cpulist")):
        if usable := sorted(_listed(path.read_text()) & os.sched_getaffinity(0)):
            found[int(path.parent.name.removeprefix("node"))] = usable
    return found


@contextlib.contextmanager
def on(cores: Sequence[int]) -> Iterator[None]:
    """Run all threads of this process on these cores meanwhile."""
    with _afterwards_as_before():
        _move(cores)
        yield


@contextlib.contextmanager
def _afterwards_as_before() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    try:
        yield
    finally:
        _move(sorted(before))


def _listed(text: str) -> set[int]:
    """'0-2,8' as {0, 1, 2, 8}."""
    spans = [span.split("-") for span in text.strip().split(",") if span]
    return {core for span in spans for core in range(int(span[0]), int(span[-1]) + 1)}


def _move(chosen: Sequence[int]) -> None:
    """Threads that somebody bound elsewhere stay there; so do all if the cores are taken away meanwhile."""
    before = os.sched_getaffinity(0)
    for thread in (int(path.name) for path in THREADS.iterdir()):
        with contextlib.suppress(OSError):  # it has ended
            if os.sched_getaffinity(thread) == before:
                os.sched_setaffinity(thread, chosen)
