"""What the operating system says about the host: its CPU, memory and clock; and which errors mean too little memory.

As with GPUs, a fact that cannot be read is None, and Missing keeps the reason.
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
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil

from scalecard.hardware.optional_facts import Missing
from scalecard.records.atomic import write_atomically

CPUS = Path("/sys/devices/system/cpu")
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


def frequency_mhz(missing: Missing) -> float | None:
    """The mean over the cores this process may use, if the kernel reports it."""
    return missing.ask("cpu_mhz", _mean_frequency)  # type: ignore[no-any-return]


def _mean_frequency() -> float:
    cores = sorted(os.sched_getaffinity(0))[:8]  # a few are enough, and each costs a read
    khz = [int(_read(CPUS / f"cpu{core}/cpufreq/scaling_cur_freq")) for core in cores]
    return sum(khz) / len(khz) / 1000


def load_average() -> float:
    """Processes that ran or waited to run over the last minute, ours included."""
    return os.getloadavg()[0]


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
