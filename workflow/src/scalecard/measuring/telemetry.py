"""The state of the hardware: before measuring, is anybody else using it? While something is timed, a thread reads it.

Another user is a warning or, with `strict`, an error. What may end a measurement is a warning too.

The thread measures what reading costs, and rests two hundred times as long, so it takes less than 1 % of a core on any
machine.
"""

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from scalecard.hardware import host, isolation, vendors
from scalecard.hardware.facts import Missing
from scalecard.hardware.vendors import Gpu
from scalecard.records.record import GpuState, HardwareState, Slowdown, Spread

PAUSE = 0.2  # seconds between two readings, at least
REST = 200  # times as long as one reading takes
BUSY_GPU = 0.05  # share of the driver's window in which a kernel ran
BUSY_CPU = 1 / 3  # of the cores
LOOK = 0.5  # seconds for which the CPU is watched
# What NVIDIA gives to containers in which NCCL runs (--shm-size=1g). A container without that has 64 MiB.
SHARED_MEMORY = 2**30


class Watch:
    """Readings while it is entered, by a thread, and at both ends; `summary` is what goes into a record."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self.gpus = gpus
        self._missing = Missing()
        self._readings: list[dict[str, Any]] = []
        self._cost = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started, self._cpu = time.monotonic(), host.cpu_seconds()

    def __enter__(self) -> "Watch":
        self._read()
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._read()

    def _run(self) -> None:
        pause = PAUSE
        while not self._stop.wait(pause):
            before = time.monotonic()
            self._read()
            spent = time.monotonic() - before
            self._cost += spent
            pause = max(PAUSE, REST * spent)

    def _read(self) -> None:
        self._readings.append(
            {
                "gpus": [gpu.state(isolation.is_ours) for gpu in self.gpus],
                "load_average": os.getloadavg()[0],
                "cpu_mhz": self._missing.ask("cpu_mhz", host.mean_frequency_mhz),
            }
        )

    def energy(self) -> float | None:
        """Joules that the GPUs have used since their drivers were loaded, or None without a counter on each."""
        read = [gpu.energy_joules for gpu in self.gpus]
        known = [joules for joules in read if joules is not None]
        return sum(known) if known and len(known) == len(read) else None

    @property
    def slowdowns(self) -> list[str]:
        """What held back which GPU, and in how many of the readings, in words."""
        return [
            f"{reason} on GPU {index} in {round(share * len(self._readings))} of {len(self._readings)} readings"
            for index, gpu in enumerate(self.summary().gpus)
            for reason, share in gpu.reasons.items()
            if reason in {*Slowdown}
        ]

    def summary(self) -> HardwareState:
        """Lowest, median and highest of what varies; the share of readings with each clock event reason."""
        busy, stolen, everything = (now - then for now, then in zip(host.cpu_seconds(), self._cpu, strict=True))
        elapsed = time.monotonic() - self._started
        return HardwareState(
            seconds=elapsed,
            readings=len(self._readings),
            sampler_cost=self._cost / elapsed,
            gpus=[self._gpu(index) for index in range(len(self.gpus))],
            load_average=max(reading["load_average"] for reading in self._readings),
            cpu_mhz=_spread([mhz for reading in self._readings if (mhz := reading["cpu_mhz"]) is not None]),
            cpu_busy=_share(busy, everything),
            steal=_share(stolen, everything),
            missing=dict(self._missing.reasons),
        )

    def _gpu(self, index: int) -> GpuState:
        states = [reading["gpus"][index] for reading in self._readings]
        known = {key: [state[key] for state in states if state[key] is not None] for key in states[0]}
        reasons = [reason for told in known["reasons"] for reason in told]
        return GpuState(
            sm_clock_mhz=_spread(known["sm_clock_mhz"]),
            temperature_c=_spread(known["temperature_c"]),
            power_w=_spread(known["power_w"]),
            others_memory_bytes=max(known["others_memory_bytes"], default=None),
            pcie_gen=max(known["pcie_gen"], default=None),
            pcie_width=max(known["pcie_width"], default=None),
            reasons={reason: reasons.count(reason) / len(known["reasons"]) for reason in dict.fromkeys(reasons)},
        )


def _share(part: float, whole: float) -> float | None:
    """From 0 to 1, which the kernel's counters may leave by a rounding error."""
    return min(1.0, max(0.0, part / whole)) if whole > 0 else None


def _spread(known: Sequence[float]) -> Spread | None:
    return Spread(low=min(known), median=statistics.median(known), high=max(known)) if known else None


@contextlib.contextmanager
def watching(leads: bool = True) -> Iterator[Watch | None]:
    """Watch this machine's GPUs and CPU; of several ranks, only the leading one does."""
    if not leads:
        yield None
        return
    with vendors.session() as gpus, Watch(gpus) as watch:
        yield watch


class Disturbed(ValueError):
    """Something else is using the machine, and config.yaml says `strict: true`."""


def disturbances(cores: int) -> list[str]:
    """What will disturb the measurement, in words. None of our own work runs yet."""
    with vendors.session() as gpus:
        found = [words for index, gpu in enumerate(gpus) for words in _on_gpu(index, gpu)]
    busy = host.cores_busy(LOOK)
    if busy > cores * BUSY_CPU:
        found.append(f"other programs kept {busy:.1f} of {cores} cores busy before the measurement")
    return found


def _on_gpu(index: int, gpu: Gpu) -> Iterator[str]:
    others, used = gpu.num_others(isolation.is_ours), gpu.utilisation
    if others:
        memory = gpu.state(isolation.is_ours)["others_memory_bytes"] or 0
        what = "another process" if others == 1 else f"{others} other processes"
        yield f"{what} used GPU {index} before the measurement ({memory / 2**20:.0f} MiB of its memory)"
    if used is not None and used > BUSY_GPU:
        yield f"GPU {index} was {100 * used:.0f} % busy before the measurement"
    if gpu.admits_one_process:
        yield f"GPU {index} allows one process at a time, so ranks may fail: `nvidia-smi -c DEFAULT` allows more"


def preflight(cores: int, *, strict: bool) -> list[str]:
    """The disturbances, who draws a desktop, why a GPU is not used, and whether shared memory is too small.

    Raise Disturbed if anything disturbs and `strict` is set.
    """
    found = disturbances(cores)
    if found and strict:
        raise Disturbed(f"not measured, because strict = true in config.yaml: {'; '.join(found)}")
    with vendors.session() as gpus:  # a desktop is worth knowing, and no reason to refuse
        found += [
            f"{name}, a display server, used GPU {index} before the measurement ({used / 2**20:.0f} MiB of its memory)"
            for index, gpu in enumerate(gpus)
            for name, used in gpu.display_servers().items()
        ]
    found += vendors.notes()
    free = host.free_shared_memory()
    if free is not None and free < SHARED_MEMORY:  # NCCL's ranks and loaders' workers exchange data there
        found.append(
            f"/dev/shm has {free / 2**20:.0f} MiB free, but NCCL and DataLoader's workers need"
            f" {SHARED_MEMORY / 2**30:.0f} GiB and may fail without a reason (bus error): start the container with"
            " --shm-size=1g or more; in a pod, mount an emptyDir with medium: Memory there"
        )
    return found
