"""What the operating system says about the host: its CPU, memory and clock; and which errors mean too little memory.

As with GPUs, a fact that cannot be read is None, and Missing keeps the reason.

NUMA: a process that drives GPUs runs on the cores next to them, because its memory and its copies then stay near.
torch.numa does the same for ranks, but needs numactl, and takes a rank's local number for that of its GPU.
"""

import contextlib
import functools
import hashlib
import os
import platform
import re
import resource
import secrets
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from scalecard.hardware.facts import Missing
from scalecard.records.atomic import write_atomically

if TYPE_CHECKING:
    from scalecard.hardware.vendors import Gpu

CPUS = Path("/sys/devices/system/cpu")
NUMA_NODES = Path("/sys/devices/system/node")
PCI = Path("/sys/bus/pci/devices")
THREADS = Path("/proc/self/task")
FEWEST_CORES = 4  # a rank's launcher, autograd's thread, NCCL's proxy and the sampler would share fewer
SALT = Path(".snakemake/scalecard-salt")  # not in results/, which gets published
CGROUP = Path("/sys/fs/cgroup")
SHARED_MEMORY = Path("/dev/shm")
# What the loader, the CPU's allocator, CUDA, cuBLAS and cuDNN say in plain errors if memory is short. Libraries that
# cannot be loaded for want of it end in an ImportError.
OUT_OF_MEMORY = (
    "failed to map segment",
    "cannot allocate memory",
    "can't allocate memory",
    "cannot apply additional memory protection",
    "out of memory",
    "alloc_failed",
    "unable to find an engine to execute",
)
TOLERANCE = 5.0  # seconds; slower corrections of the clock are everyday


def cpu_model() -> str:
    """The model name, as /proc/cpuinfo gives it."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return " ".join(found[1].split()) if found else platform.processor() or platform.machine()


def free_shared_memory() -> int | None:
    """Bytes that processes may still put into shared memory, or None if it is not mounted."""
    with contextlib.suppress(OSError):
        return shutil.disk_usage(SHARED_MEMORY).free
    return None


def hashed_name() -> str:
    """Eight hex digits that tell hosts apart in what gets published, without naming them."""
    return hashlib.sha256(project_salt() + platform.node().encode()).hexdigest()[:8]


@functools.cache
def project_salt() -> bytes:
    """A secret of this project's folder: without it, a host's name can be found from its hash by trying names.

    Made once, by the workflow that starts the measurements; where it can be neither read nor made, for this process.
    """
    with contextlib.suppress(OSError):
        return SALT.read_bytes()
    made = secrets.token_bytes(16)
    with contextlib.suppress(OSError):
        write_atomically(SALT, made)
    return made


def usable_cores() -> int:
    """Cores this process may use: its affinity, and the CPU quota of its cgroup if one is set."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))


def numa_node(gpu: "Gpu") -> int:
    """The NUMA node of a GPU, inside a session; an error of Missing's if it is not known."""
    found = int(_read(PCI / gpu.pci_address() / "numa_node"))
    if found < 0:
        raise OSError("the kernel names no NUMA node")
    return found


def cores_near(gpu: "Gpu") -> list[int]:
    """The cores next to a GPU that this process may use, inside a session; errors as in `numa_node`, or if too few."""
    near, allowed = _listed(_read(PCI / gpu.pci_address() / "local_cpulist")), os.sched_getaffinity(0)
    if len(near & allowed) < min(FEWEST_CORES, len(allowed)):
        raise OSError(f"{len(near & allowed)} of the cores next to it may be used, which is too few to run on")
    return sorted(near & allowed)


def cores_of(indices: Sequence[int]) -> list[int]:
    """The cores next to any of these GPUs; none where that of one is not known."""
    from scalecard.hardware import vendors  # with pydantic, for which the launcher of every job would wait

    with vendors.session() as gpus:
        known = [Missing().ask("cores", cores_near, gpus[index]) for index in indices if index < len(gpus)]
    return sorted({core for near in known for core in near}) if all(known) else []


def numa_nodes() -> dict[int, list[int]]:
    """The cores of each NUMA node that this process may use; nodes without one are left out."""
    found = {}
    for path in sorted(NUMA_NODES.glob("node[0-9]*/cpulist")):
        if usable := sorted(_listed(path.read_text()) & os.sched_getaffinity(0)):
            found[int(path.parent.name.removeprefix("node"))] = usable
    return found


def _listed(text: str) -> set[int]:
    """'0-2,8' as {0, 1, 2, 8}."""
    spans = [span.split("-") for span in text.strip().split(",") if span]
    return {core for span in spans for core in range(int(span[0]), int(span[-1]) + 1)}


def bind(cores: Sequence[int]) -> None:
    """Run all threads of this process on these cores, if there are any.

    Threads that somebody bound elsewhere stay there; so do all if the cores are taken away meanwhile.
    """
    before = os.sched_getaffinity(0)
    for thread in (int(path.name) for path in THREADS.iterdir()):
        with contextlib.suppress(OSError):  # it has ended
            if cores and os.sched_getaffinity(thread) == before:
                os.sched_setaffinity(thread, cores)


@contextlib.contextmanager
def on(cores: Sequence[int]) -> Iterator[None]:
    """The same meanwhile; afterwards threads may run where they could before, and so may ranks started then."""
    before = sorted(os.sched_getaffinity(0))
    bind(cores)
    try:
        yield
    finally:
        bind(before)


def facts(missing: Missing) -> dict[str, str | int | None]:
    """Memory in bytes, frequency governor, and the limits of the cgroup ('max' if there is none)."""
    return {
        "ram_bytes": psutil.virtual_memory().total,
        "cpu_governor": missing.ask("cpu_governor", _read, CPUS / "cpu0/cpufreq/scaling_governor"),
        "cgroup_cpu_max": missing.ask("cgroup_cpu_max", _read, CGROUP / "cpu.max"),
        "cgroup_memory_max": missing.ask("cgroup_memory_max", _read, CGROUP / "memory.max"),
    }


def _read(path: Path) -> str:
    return path.read_text().strip()


def mean_frequency_mhz() -> float:
    """The mean over the cores this process may use; OSError if the kernel does not report it."""
    cores = sorted(os.sched_getaffinity(0))[:8]  # a few are enough, and each costs a read
    khz = [int(_read(CPUS / f"cpu{core}/cpufreq/scaling_cur_freq")) for core in cores]
    return sum(khz) / len(khz) / 1000


def cpu_seconds() -> tuple[float, float, float]:
    """Seconds since boot over the cores this process may use: (busy, stolen by the hypervisor, all)."""
    ours = os.sched_getaffinity(0)
    cores = [times for core, times in enumerate(psutil.cpu_times(percpu=True)) if core in ours]
    stolen = sum(getattr(times, "steal", 0.0) for times in cores)
    everything = sum(sum(t) - getattr(t, "guest", 0.0) - getattr(t, "guest_nice", 0.0) for t in cores)
    idle = sum(times.idle + getattr(times, "iowait", 0.0) for times in cores)
    return everything - idle - stolen, stolen, everything


def cores_busy(seconds: float) -> float:
    """Sleep for `seconds`, and return how many cores were busy on average meanwhile."""
    before = cpu_seconds()[0]
    start = time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds()[0] - before) / (time.monotonic() - start)


def address_towards(peer: str) -> str:
    """This host's own address on the route to `peer`. Nothing is sent."""
    (family, _, _, _, address), *_ = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out, of the host or of a GPU."""
    return isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in OUT_OF_MEMORY)


def too_little_memory(error: BaseException) -> str:
    """One sentence: what was wanted, how much is free, and which limits hold."""
    known = [f"{psutil.virtual_memory().available / 2**20:.0f} MiB are free"]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        known.append(f"`ulimit -v` allows {soft / 2**20:.0f} MiB")
    with contextlib.suppress(OSError):
        if (limit := _read(CGROUP / "memory.max")) != "max":
            known.append(f"the control group allows {int(limit) / 2**20:.0f} MiB")
    what = (str(error).splitlines() or [""])[0] or "memory was asked for in vain"
    return f"too little memory: {', '.join(known)} ({what})"


class Stopwatch:
    """When a measurement began and ended: by the system's clock, corrected with the monotonic clock.

    It runs from when it is made until stop(); `finished` never lies before `started`. Both are ISO 8601, in UTC.
    """

    def __init__(self) -> None:
        self._began, self._ticks = _now(), _seconds()
        self.started = self._began.isoformat(timespec="milliseconds")
        self.finished = self.started
        self.remarks = list[str]()  # that the system's clock was set meanwhile, if it was

    def stop(self) -> None:
        """The measurement has ended now."""
        ended = self._began + timedelta(seconds=_seconds() - self._ticks)
        self.finished = ended.isoformat(timespec="milliseconds")
        set_by = (_now() - ended).total_seconds()
        if abs(set_by) > TOLERANCE:
            way = "back" if set_by < 0 else "ahead"
            self.remarks.append(
                f"the system's clock was set {way} by {abs(set_by):.0f} s during the measurement; `finished` is"
                " `started` and the time that really passed"
            )


def _now() -> datetime:
    return datetime.now(UTC)


def _seconds() -> float:
    """Since boot, time asleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
