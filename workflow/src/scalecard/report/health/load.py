"""What a sustained load did to a device: when its rate fell, and what held its clocks back."""

from dataclasses import dataclass
from itertools import accumulate
from statistics import median

from scalecard.hardware.nvml import SLOWDOWNS
from scalecard.records.record import Record

FALL = 0.95  # of the first rate
FEWEST = 3
FIRST = 0.1  # of the samples, and at least FEWEST, say what the rate was at first
TOGETHER = 5  # samples, whose median is not moved by one interruption
NOTABLE = 0.05  # of the readings
OF_LAPTOPS = SLOWDOWNS[0x20]  # their fans are not made for a sustained load, so the driver lowers their clocks


@dataclass(frozen=True)
class Course:
    """The rate over a load: its last share of the first, and the seconds until it had fallen by 5 %, or None."""

    seconds: float
    at_the_end: float
    fell_after: float | None


def course(record: Record) -> Course:
    """How the rate went, from the seconds per call in the order in which they were taken."""
    calls = record.telemetry[0].iterations if record.telemetry else 1
    samples = record.samples[0]
    ends = [calls * seconds for seconds in accumulate(samples)]
    first = median(samples[: max(FEWEST, int(FIRST * len(samples)))])
    windows = [median(samples[start : start + TOGETHER]) for start in range(max(1, len(samples) - TOGETHER + 1))]
    share = first / windows[-1]
    slow = [start for start, seconds in enumerate(windows) if first / seconds <= FALL]
    return Course(ends[-1], share, ends[slow[0]] if slow and share <= FALL else None)


def held_back(record: Record, device: int, *, in_laptop: bool = False) -> dict[str, float]:
    """What slowed the device's clocks down, each with the share of readings that showed it; a power cap is normal."""
    abnormal = {*SLOWDOWNS.values()} - ({OF_LAPTOPS} if in_laptop else set())
    found: dict[str, float] = {}
    for entry in record.telemetry:
        if entry.state and device < len(entry.state.gpus):
            for reason, share in entry.state.gpus[device].reasons.items():
                if reason in abnormal and share >= NOTABLE:
                    found[reason] = max(share, found.get(reason, 0.0))
    return found


def highest_temperature(record: Record, device: int) -> float | None:
    """Degrees Celsius."""
    states = [entry.state.gpus[device] for entry in record.telemetry if entry.state and device < len(entry.state.gpus)]
    return max((gpu.temperature_c.high for gpu in states if gpu.temperature_c), default=None)
