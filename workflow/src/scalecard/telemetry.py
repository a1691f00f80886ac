"""The state of the hardware while something is timed: a thread samples it, and measures what that costs.

The thread rests two hundred times as long as a sample takes, so its cost stays below 1 % on any machine.
"""

import contextlib
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from scalecard import host, nvml

PAUSE = 0.2  # seconds between samples, at least
REST = 200  # times as long as one sample takes
SPREAD = ("sm_clock_mhz", "temperature_c", "power_w")
MOST = ("others_memory_bytes", "pcie_gen", "pcie_width")


class Watch:
    """Samples from start to stop; `summary` is what goes into a record."""

    def __init__(self, gpus: Sequence[nvml.Gpu]) -> None:
        self.gpus = gpus
        self._missing = nvml.Missing()
        self._samples: list[dict[str, Any]] = []
        self._cost = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started, self._cpu = time.monotonic(), host.cpu_seconds()

    def start(self) -> None:
        self._sample()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()

    def _run(self) -> None:
        pause = PAUSE
        while not self._stop.wait(pause):
            before = time.thread_time()
            self._sample()
            spent = time.thread_time() - before
            self._cost += spent
            pause = max(PAUSE, REST * spent)

    def _sample(self) -> None:
        self._samples.append(
            {
                "gpus": [nvml.state(gpu, host.is_ours) for gpu in self.gpus],
                "load_average": host.load_average(),
                "cpu_mhz": host.frequency_mhz(self._missing),
            }
        )

    def energy(self) -> float | None:
        """Joules that the GPUs have used since their drivers were loaded, or None without a counter."""
        read = [nvml.energy_joules(gpu) for gpu in self.gpus]
        known = [joules for joules in read if joules is not None]
        return sum(known) if known and len(known) == len(read) else None

    @property
    def slowdowns(self) -> list[str]:
        """In words, which GPU was held back by what, and in how many of the samples."""
        return [
            f"{reason} on GPU {index} in {share:.0%} of the samples".replace("%", " %")
            for index, gpu in enumerate(self.summary()["gpus"])
            for reason, share in gpu["reasons"].items()
            if reason in nvml.SLOWDOWNS.values()
        ]

    def summary(self) -> dict[str, Any]:
        """Lowest, median and highest of what varies; the share of samples with each clock event reason."""
        busy, stolen, everything = (now - then for now, then in zip(host.cpu_seconds(), self._cpu, strict=True))
        elapsed = time.monotonic() - self._started
        return {
            "seconds": elapsed,
            "samples": len(self._samples),
            "sampler_cost": self._cost / elapsed,
            "gpus": [self._gpu(index) for index in range(len(self.gpus))],
            "load_average": max(sample["load_average"] for sample in self._samples),
            "cpu_mhz": _spread([sample["cpu_mhz"] for sample in self._samples]),
            "cpu_busy": busy / everything if everything else None,
            "steal": stolen / everything if everything else None,
            "missing": dict(self._missing.reasons),
        }

    def _gpu(self, index: int) -> dict[str, Any]:
        states = [sample["gpus"][index] for sample in self._samples]
        bits = [state["reasons"] for state in states if state["reasons"] is not None]
        words = [word for value in bits for word in nvml.reasons_in_words(value)]
        summary: dict[str, Any] = {key: _spread([state[key] for state in states]) for key in SPREAD}
        summary |= {key: _most([state[key] for state in states]) for key in MOST}
        summary["reasons"] = {word: words.count(word) / len(bits) for word in dict.fromkeys(words)}
        return summary


def _spread(values: list[float | None]) -> list[float] | None:
    known = [value for value in values if value is not None]
    return [min(known), statistics.median(known), max(known)] if known else None


def _most(values: list[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


@contextlib.contextmanager
def watching(leads: bool = True) -> Iterator[Watch | None]:
    """Watch this machine's GPUs and CPU; of several ranks only the one that leads does."""
    if not leads:
        yield None
        return
    with nvml.session() as gpus:
        watch = Watch(gpus)
        watch.start()
        try:
            yield watch
        finally:
            watch.stop()
