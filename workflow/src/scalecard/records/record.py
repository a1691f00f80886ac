"""What a measurement leaves behind: Result, Record, Check, Count, Telemetry; and what axes of cases are called.

The writer (measuring/telemetry.py) and all readers share these types; result.schema.json describes them field by field.
None means that the fact could not be read.
"""

import functools
import math
import statistics
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from scalecard.records.statistics import Interval, Ratio, between, larger, paired_ratio, unpaired_ratio, within

SCHEMA_VERSION = 5
BOUND = 0.9  # of the time
Scalar = str | int | float | bool | None
Case = dict[str, Scalar]
# The switches that tuning tries. A case has an axis for each that is on: its place among them, from 1.
RUNGS = ("tf32", "bf16", "channels_last", "fused", "benchmark", "compile", "graphs")
BASELINE = "float32"  # without any
# Axes, and settings of config.yaml, whose values are sizes in bytes.
IN_BYTES = frozenset({"bytes", "link_bytes", "collective_bytes", "memory_bytes"})
# What stands before a value where that is not the axis' name: nothing where the value says enough.
LABELS = {"bytes": "", **{rung: f"{rung} as rung" for rung in RUNGS}}
POWER_CAP = "power cap"  # a reason that is normal


class Slowdown(StrEnum):
    """Why the hardware was held back, among the reasons of a lower clock."""

    HARDWARE = "hardware slowdown"
    THERMAL_BY_SOFTWARE = "thermal slowdown (software)"
    THERMAL_BY_HARDWARE = "thermal slowdown (hardware)"
    POWER_BRAKE = "power brake"


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


class Reason(StrEnum):
    """Why a case has no samples; the record's note has the details, and does not repeat it."""

    UNSUPPORTED = "unsupported"  # this machine, library or workload cannot do it
    NO_TIME = "no time"  # left in the budget
    OUT_OF_MEMORY = "out of memory"
    NOT_PROVEN = "not proven"  # it does not compute or do what it must
    DEVICE_FAULT = "device fault"  # the driver reported an error of a GPU
    LOST = "lost"  # a process or a node was killed, or did not answer
    ERROR = "error"  # any other error of a program


# What a note cannot do without; the other notes are sentences that say why by themselves.
SAID_BEFORE_NOTE = (Reason.OUT_OF_MEMORY, Reason.NOT_PROVEN, Reason.DEVICE_FAULT)


@dataclass(frozen=True, kw_only=True)
class Check:
    """What was proven about a case: `difference`, computed in `dtype`, must not exceed `tolerance`."""

    name: str
    dtype: str
    difference: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """What is not finite does not pass."""
        return math.isfinite(self.difference) and self.difference <= self.tolerance


@dataclass(frozen=True, kw_only=True)
class Count:
    """What one call of the timed work was seen to do, and the closed form of what it must do.

    Both are in `unit`: 'FLOP', 'B', or '' for what is counted one by one.
    """

    name: str
    counted: float
    expected: float
    unit: str = ""

    @property
    def passed(self) -> bool:
        """Counts are exact."""
        return self.counted == self.expected


@dataclass(frozen=True, kw_only=True)
class Record:
    """One case that was measured ('ok'), skipped or failed.

    `samples` holds one list per process, in `unit`: seconds, bytes, or a fraction of one. `telemetry` has one entry per
    list if something was timed, and is empty otherwise. `work` is what one call does. What has no samples has a
    `reason`, and a `note` with the details. An empty case stands for the whole experiment, which ended early. Of a
    model that is cut, `blocks` says how many each stage has.
    """

    case: Case
    metric: str
    unit: str
    samples: list[list[float]] = field(default_factory=list)
    status: str = "ok"
    reason: Reason | None = None
    note: str = ""
    checks: list[Check] = field(default_factory=list)
    work: list[Count] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    telemetry: list[Telemetry] = field(default_factory=list)

    @classmethod
    def skipped(
        cls, case: Case, note: str, *, reason: Reason = Reason.UNSUPPORTED, metric: str = "time", unit: str = "s"
    ) -> "Record":
        """A case that was not tried; `note` says why."""
        return cls(case=case, metric=metric, unit=unit, status="skipped", reason=reason, note=note)

    @classmethod
    def failed(cls, case: Case, note: str, *, reason: Reason, metric: str = "time", unit: str = "s") -> "Record":
        """A case that was tried in vain; `note` says how it failed."""
        return cls(case=case, metric=metric, unit=unit, status="failed", reason=reason, note=note)

    @property
    def is_fault(self) -> bool:
        """Whether something failed that should not. Too little memory is an answer."""
        return self.status == "failed" and self.reason is not Reason.OUT_OF_MEMORY

    @property
    def why(self) -> str:
        """The note for readers, after the reason where it needs one: 'out of memory: 2 GiB are too many'."""
        return f"{self.reason}: {self.note}" if self.reason in SAID_BEFORE_NOTE else self.note

    @property
    def num_samples(self) -> int:
        """The number over all processes."""
        return sum(map(len, self.samples))

    @functools.cached_property
    def median(self) -> float:
        """The median over processes of each process's median."""
        return statistics.median(map(statistics.median, self.samples))

    @functools.cached_property
    def within(self) -> Interval | None:
        """Uncertainty within a process: the typical order-statistic interval, around the median."""
        return within(self.samples)

    @functools.cached_property
    def between(self) -> Interval | None:
        """Uncertainty between fresh processes; None if there was only one."""
        return between(self.samples)

    @property
    def interval(self) -> Interval | None:
        """The larger of the two."""
        return larger(self.within, self.between)

    @property
    def launch_bound(self) -> bool:
        """Whether the launching thread, not the GPUs that it launches work on, may have set the pace.

        It was not done with launching until the last tenth. A call that waits for what it launches says nothing.
        """
        launching = [entry.enqueue for entry in self.telemetry if entry.enqueue and entry.state and entry.state.gpus]
        waits = self.metric == "enqueue_time" or self.case.get("call") == "blocking"
        return bool(launching) and not waits and statistics.median(launching) >= BOUND * self.median

    def matches(self, **case: Scalar) -> bool:
        """Whether the case has all these values; an absent axis counts as None."""
        return all(self.case.get(key) == value for key, value in case.items())

    def integer(self, axis: str, default: int | None = None) -> int:
        """The case's whole number on an axis, or `default` if it has none there; TypeError if it is something else."""
        value = self.case.get(axis)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{axis} = {value!r}: must be a whole number, in {self.case}")
        return value

    def text(self, axis: str, default: str | None = None) -> str:
        """The case's text on an axis, or `default` if it has none there; TypeError if it is something else."""
        value = self.case.get(axis)
        value = default if value is None else value
        if not isinstance(value, str):
            raise TypeError(f"{axis} = {value!r}: must be text, in {self.case}")
        return value

    def over(self, other: "Record") -> Ratio:
        """self / other: paired if both were measured in the same rounds, unpaired otherwise."""
        ours, theirs = ([entry.rounds_id for entry in record.telemetry] for record in (self, other))
        ratio = paired_ratio if ours and ours == theirs else unpaired_ratio
        return ratio(self.samples, other.samples)


@dataclass(frozen=True, kw_only=True)
class Result:
    """All records of one experiment on one platform, with what they were measured on and from.

    `budget_seconds` is how long it was allowed to take; 0 is as long as it needs. `failed_again` is whether the result
    that it replaced had failed cases too.
    """

    experiment: str
    platform: str
    spec: dict[str, Any]
    environment: dict[str, Any]
    started: str
    finished: str
    warnings: list[str]
    records: list[Record]
    budget_seconds: int = 0
    failed_again: bool = False
    schema_version: int = SCHEMA_VERSION

    def __hash__(self) -> int:
        return hash((self.experiment, self.platform, self.started))  # for caches: what it holds cannot be hashed

    @property
    def emulated(self) -> bool:
        """Whether CPU workers or CPU ranks stood in for GPUs."""
        return bool(self.environment["emulated"])

    @property
    def seconds(self) -> float:
        """How long it took to measure."""
        return (datetime.fromisoformat(self.finished) - datetime.fromisoformat(self.started)).total_seconds()

    def count(self, status: str) -> int:
        """How many records have this status."""
        return sum(record.status == status for record in self.records)

    def select(self, metric: str, **case: Scalar) -> list[Record]:
        """The measured records of a metric whose case has these values."""
        return [r for r in self.records if r.metric == metric and r.status == "ok" and r.matches(**case)]

    def find(self, metric: str, **case: Scalar) -> Record | None:
        """The first such record, or None."""
        return next(iter(self.select(metric, **case)), None)


def axis_label(axis: str) -> str:
    """What stands before a value on this axis: 'batch size', or nothing."""
    return LABELS.get(axis, axis.replace("_", " "))


def rungs_of(case: Case) -> tuple[str, ...]:
    """The rungs that are on, in the order in which they were added."""
    places = {rung: case[rung] for rung in RUNGS if rung in case}
    return tuple(sorted(places, key=lambda rung: places[rung] or 0))


def parts_of(case: Case) -> list[str]:
    """What makes it another step than the plain one, the last addition last: rungs, 'accumulate 4', 'batch x2'."""
    count, factor = case.get("accumulate"), case.get("batch_factor")
    return [*rungs_of(case), *[f"accumulate {count}"] * bool(count), *[f"batch x{factor}"] * bool(factor)]


def combination(case: Case) -> str:
    """'bf16 + fused', or 'float32'."""
    return " + ".join(parts_of(case)) or BASELINE
