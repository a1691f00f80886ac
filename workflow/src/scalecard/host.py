"""What the operating system says of the CPU: its facts, its state now, and whose time it spends.

As with GPUs, a fact that cannot be read is None, and Missing keeps the reason.
"""

import ctypes
import hashlib
import os
import platform
import re
import signal
import socket
import time
from pathlib import Path

import psutil

from scalecard.nvml import Missing

CPUS = Path("/sys/devices/system/cpu")
CGROUP = Path("/sys/fs/cgroup")
ROOT_PID = "SCALECARD_ROOT_PID"
LOCK = Path("/tmp/scalecard.lock")  # one for the machine: not the user's own temporary folder
VERBS = Path("/dev/infiniband")  # what NCCL uses between nodes, where it is


def cpu_model() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return " ".join(found[1].split()) if found else platform.processor() or platform.machine()


def lock_file() -> Path:
    """The machine's lock, made where there is none, for every user to lock."""
    if not LOCK.exists():
        LOCK.touch()
        LOCK.chmod(0o666)
    return LOCK


def address_towards(peer: str) -> str:
    """This host's address on the way to another one, which is sent nothing."""
    (family, _, _, _, address), *_ = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def hashed_name() -> str:
    """Tells the nodes of a cluster apart in what gets published, without naming them."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def usable_cores() -> int:
    """Cores this process may use: its affinity, and the CPU quota of its cgroup where one is set."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))


def facts(missing: Missing) -> dict[str, str | int | None]:
    """Memory in bytes, frequency governor, and the limits of the cgroup ('max' where there is none)."""
    return {
        "ram_bytes": psutil.virtual_memory().total,
        "cpu_governor": missing.ask("cpu_governor", _read, CPUS / "cpu0/cpufreq/scaling_governor"),
        "cgroup_cpu_max": missing.ask("cgroup_cpu_max", _read, CGROUP / "cpu.max"),
        "cgroup_memory_max": missing.ask("cgroup_memory_max", _read, CGROUP / "memory.max"),
    }


def _read(path: Path) -> str:
    return path.read_text().strip()


def frequency_mhz(missing: Missing) -> float | None:
    """The mean of the cores this process may use, where the kernel tells it."""
    return missing.ask("cpu_mhz", _mean_frequency)  # type: ignore[no-any-return]


def _mean_frequency() -> float:
    cores = sorted(os.sched_getaffinity(0))[:8]  # a few tell enough, and each costs a read
    khz = [int(_read(CPUS / f"cpu{core}/cpufreq/scaling_cur_freq")) for core in cores]
    return sum(khz) / len(khz) / 1000


def load_average() -> float:
    """Of the last minute: processes that ran or waited to run, ours included."""
    return os.getloadavg()[0]


def cpu_seconds() -> tuple[float, float, float]:
    """(busy, stolen by the hypervisor, all) seconds since boot of the cores that this process may use."""
    ours = os.sched_getaffinity(0)
    cores = [times for core, times in enumerate(psutil.cpu_times(percpu=True)) if core in ours]
    stolen = sum(getattr(times, "steal", 0.0) for times in cores)
    everything = sum(sum(t) - getattr(t, "guest", 0.0) - getattr(t, "guest_nice", 0.0) for t in cores)
    idle = sum(times.idle + getattr(times, "iowait", 0.0) for times in cores)
    return everything - idle - stolen, stolen, everything


def cores_busy(seconds: float) -> float:
    """How many cores were busy on average over the next `seconds`, in which this process sleeps."""
    before = cpu_seconds()[0]
    start = time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds()[0] - before) / (time.monotonic() - start)


def claim() -> None:
    """Make this process the root of the measurement: it and its descendants are `ours` from now on."""
    os.environ[ROOT_PID] = str(os.getpid())


def is_ours(pid: int) -> bool:
    """Whether a process belongs to this measurement; one that cannot be seen from here does not."""
    root = int(os.environ.get(ROOT_PID, os.getpid()))
    try:
        return root == pid or any(parent.pid == root for parent in psutil.Process(pid).parents())
    except psutil.Error:
        return False


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies: an orphan would disturb the next measurement."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
