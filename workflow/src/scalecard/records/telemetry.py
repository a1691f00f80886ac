"""How the samples of one process were taken, and the state of the hardware meanwhile.

The writer (measuring/telemetry.py) and all readers share these types; result.schema.json describes them field by field.
None means that the fact could not be read.
"""

from dataclasses import dataclass
from enum import StrEnum


class Slowdown(StrEnum):
    """Why the hardware was held back, among the reasons of a lower clock."""

    HARDWARE = "hardware slowdown"
    THERMAL_BY_SOFTWARE = "thermal slowdown (software)"
    THERMAL_BY_HARDWARE = "thermal slowdown (hardware)"
    POWER_BRAKE = "power brake"


POWER_CAP = "power cap"  # a reason that is normal


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The lowest, median and highest of the values that were read."""

    low: float
    median: float
    high: float


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """One GPU over all readings. `reasons` maps each clock event reason to the share of readings that showed it."""

    sm_clock_mhz: Spread | None
    temperature_c: Spread | None
    power_w: Spread | None
    others_memory_bytes: int | None
    pcie_gen: int | None
    pcie_width: int | None
    reasons: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class HardwareState:
    """The GPUs and the CPU while something was timed.

    `sampler_cost` is the share of one core that reading the state took; `cpu_busy` and `steal` (time taken by the
    hypervisor) are shares of the cores that this process may use. `missing` says why a fact is None.
    """

    seconds: float
    readings: int
    sampler_cost: float
    gpus: list[GpuState]
    load_average: float
    cpu_mhz: Spread | None
    cpu_busy: float | None
    steal: float | None
    missing: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """One process's timing of one variant.

    Variants with the same `rounds_id` were timed in the same rounds, so their samples can be paired. `iterations` is
    the number of calls in a block, `stopped` the reason why timing ended, `enqueue` the median seconds of one call
    until everything is enqueued, `joules` the energy of one call over all GPUs or, if it is None, `no_joules` the
    reason, and `measured_again` what slowed a GPU down the first time, before this was measured once more.
    """

    rounds_id: str
    iterations: int = 1
    stopped: str = ""
    enqueue: float | None = None
    joules: float | None = None
    no_joules: str = ""
    measured_again: str = ""
    state: HardwareState | None = None
