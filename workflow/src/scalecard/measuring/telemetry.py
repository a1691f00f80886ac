"""The state of the hardware while something is timed: a thread reads it, and measures what reading costs.

The thread rests two hundred times as long as one reading takes, so it costs less than 1 % of a core on any machine.
"""

import contextlib
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from scalecard.hardware import host, isolation, vendors
from scalecard.hardware.optional_facts import Missing
from scalecard.hardware.vendors.protocol import Gpu
from scalecard.records.record import GpuState, HardwareState, Slowdown, Spread

PAUSE = 0.2  # seconds between two readings, at least
REST = 200  # times as long as one reading takes


class Watch:
    """Readings from start to stop; `summary` is what goes into a record."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self.gpus = gpus
        self._missing = Missing()
        self._readings: list[dict[str, Any]] = []
        self._cost = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started, self._cpu = time.monotonic(), host.cpu_seconds()

    def start(self) -> None:
        """Take the first reading, then go on in a thread."""
        self._read()
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and take the last reading."""
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
                "load_average": host.load_average(),
                "cpu_mhz": host.frequency_mhz(self._missing),
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
            cpu_mhz=_spread([reading["cpu_mhz"] for reading in self._readings]),
            cpu_busy=_share(busy, everything),
            steal=_share(stolen, everything),
            missing=dict(self._missing.reasons),
        )

    def _gpu(self, index: int) -> GpuState:
        states = [reading["gpus"][index] for reading in self._readings]
        told = [state["reasons"] for state in states if state["reasons"] is not None]
        reasons = [reason for own in told for reason in own]
        values = {key: [state[key] for state in states] for key in states[0]}
        return GpuState(
            sm_clock_mhz=_spread(values["sm_clock_mhz"]),
            temperature_c=_spread(values["temperature_c"]),
            power_w=_spread(values["power_w"]),
            others_memory_bytes=_most(values["others_memory_bytes"]),
            pcie_gen=_most(values["pcie_gen"]),
            pcie_width=_most(values["pcie_width"]),
            reasons={reason: reasons.count(reason) / len(told) for reason in dict.fromkeys(reasons)},
        )


def _share(part: float, whole: float) -> float | None:
    """From 0 to 1, which the kernel's counters may leave by a rounding error."""
    return min(1.0, max(0.0, part / whole)) if whole > 0 else None


def _spread(values: list[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(low=min(known), median=statistics.median(known), high=max(known)) if known else None


def _most(values: list[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


@contextlib.contextmanager
def watching(leads: bool = True) -> Iterator[Watch | None]:
    """Watch this machine's GPUs and CPU; of several ranks, only the leading one does."""
    if not leads:
        yield None
        return
    with vendors.session() as gpus:
        watch = Watch(gpus)
        watch.start()
        try:
            yield watch
        finally:
            watch.stop()
