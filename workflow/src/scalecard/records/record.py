"""What a measurement leaves behind: Result, Record, Check, Count, Telemetry.

The writer (measuring/telemetry.py) and all readers share these types, and result.schema.json is made of them. None
means that the fact could not be read.
"""

import functools
import math
import statistics
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainSerializer, computed_field, with_config
from typing_extensions import TypedDict

from scalecard.records.axes import Axes, Case, Scalar, Settings
from scalecard.records.environment import Environment
from scalecard.records.fields import (
    STRICT,
    FreeText,
    Identifier,
    KeepOrder,
    Moment,
    Name,
    Natural,
    NonEmpty,
    NotNegative,
    Number,
    Positive,
    Share,
    StoredAs,
    complete,
    without_paths,
)
from scalecard.records.statistics import Interval, Ratio, between, larger, paired_ratio, unpaired_ratio, within

BOUND = 0.9  # of the time
Unit = Literal["s", "B", "fraction", "count", "B/s", "samples", "FLOP"]
WithoutPaths = PlainSerializer(without_paths, return_type=Settings)
POWER_CAP = "power cap"  # a reason that is normal


class Slowdown(StrEnum):
    """Why the hardware was held back, among the reasons of a lower clock."""

    HARDWARE = "hardware slowdown"
    THERMAL_BY_SOFTWARE = "thermal slowdown (software)"
    THERMAL_BY_HARDWARE = "thermal slowdown (hardware)"
    POWER_BRAKE = "power brake"


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class Spread:
    """Of the values that were read."""

    low: Number
    median: Number
    high: Number


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class GpuState:
    """One GPU over all readings."""

    sm_clock_mhz: Spread | None
    temperature_c: Spread | None
    power_w: Spread | None
    others_memory_bytes: Natural | None
    """Most bytes of its memory that other processes used."""
    pcie_gen: Natural | None
    """Highest PCIe generation."""
    pcie_width: Natural | None
    """Most PCIe lanes."""
    reasons: dict[str, Share]
    """Clock event reason to the share of readings that showed it."""


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class HardwareState:
    """The GPUs and the CPU while something was timed."""

    seconds: NotNegative
    """How long it was watched."""
    readings: Positive
    sampler_cost: NotNegative
    """Share of one core that reading took."""
    gpus: list[GpuState]
    """In CUDA's order."""
    load_average: NotNegative
    """The highest of one minute."""
    cpu_mhz: Spread | None
    """Mean frequency of the cores."""
    cpu_busy: NotNegative | None
    """Busy share of the time of the cores that this process may use, ours included."""
    steal: NotNegative | None
    """Share of the cores' time that the hypervisor took."""
    missing: dict[str, FreeText]
    """Why a fact is null."""


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """How one process's samples of one variant were taken."""

    rounds_id: str
    """Records with the same value were timed in the same rounds, so their samples can be paired."""
    iterations: Positive = 1
    """Calls in one block, whose mean is one sample."""
    stopped: str = ""
    """Why timing ended."""
    enqueue: NotNegative | None = None
    """Median seconds of one call until everything is enqueued."""
    joules: NotNegative | None = None
    """Energy of one call over all GPUs, from windows of at least a second."""
    no_joules: str = ""
    """Why joules is null; empty if it is not."""
    measured_again: FreeText = ""
    """What slowed a GPU down the first time, before this was measured once more; otherwise empty."""
    state: HardwareState | None = None
    """null on ranks that do not watch."""

    check_complete = complete()


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


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class Check:
    """What was proven about a case: `difference` must not exceed `tolerance`."""

    name: Name
    dtype: NonEmpty
    """In which the work computed: float64, or as it was timed."""
    difference: NotNegative
    """The largest that was measured."""
    tolerance: NotNegative

    check_complete = complete(passed=lambda passed: passed is True)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def passed(self) -> bool:
        """What is not finite does not pass."""
        return math.isfinite(self.difference) and self.difference <= self.tolerance


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class Count:
    """What one call of the timed work was seen to do, for example FLOPs, and what it must do."""

    name: Name
    counted: NotNegative
    """In one call of the object that was timed, on one rank."""
    expected: NotNegative
    """Its closed form."""
    unit: Literal["FLOP", "B", ""] = ""
    """Of both; nothing for what is counted one by one."""

    check_complete = complete(passed=lambda passed: passed is True)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def passed(self) -> bool:
        """Counts are exact."""
        return self.counted == self.expected


class Uncertainty(TypedDict, total=False):
    """95 % bounds of the median, within a process and between processes, computed from the samples."""

    within: tuple[float, float] | None
    between: tuple[float, float] | None


def _has_bounds(uncertainty: Any) -> bool:
    return isinstance(uncertainty, dict) and uncertainty.keys() <= Uncertainty.__annotations__.keys()


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class Record:
    """One case that was measured ('ok'), skipped or failed. An empty case: the whole experiment ended early."""

    case: Annotated[Case, StoredAs(Axes), KeepOrder]
    metric: Identifier
    """docs/results.md says what each one is."""
    unit: Unit
    samples: list[Annotated[list[NotNegative], Field(min_length=1)]] = field(default_factory=list)
    """One list per fresh process, in the order in which they were taken; an accuracy has one value per epoch."""
    status: Literal["ok", "skipped", "failed"] = "ok"
    reason: Reason | None = None
    """Why there are no samples; null if there are."""
    note: FreeText = ""
    """Why it was skipped or failed, or what some of the processes lost."""
    checks: list[Check] = field(default_factory=list)
    """What was proven about it, in float64 on the same builder and as it was timed."""
    work: list[Count] = field(default_factory=list)
    """What one call of the timed work was seen to do, beside what it must do."""
    blocks: list[Positive] = field(default_factory=list)
    """Of a model that is cut, how many blocks each stage has."""
    telemetry: list[Telemetry] = field(default_factory=list)
    """One entry per list of samples if something was timed."""
    runs: list[Moment] = field(default_factory=list)
    """When the run began that took each list of samples: an earlier one than the result's, if that was ended."""

    check_complete = complete("runs", uncertainty=_has_bounds)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def uncertainty(self) -> Uncertainty:
        """For readers of the file."""
        if not self.samples:
            return {}
        within, between = [(each.low, each.high) if each else None for each in (self.within, self.between)]
        return {"within": within, "between": between}

    @classmethod
    def skipped(
        cls, case: Case, note: str, *, reason: Reason = Reason.UNSUPPORTED, metric: str = "time", unit: Unit = "s"
    ) -> "Record":
        """A case that was not tried; `note` says why."""
        return cls(case=case, metric=metric, unit=unit, status="skipped", reason=reason, note=note)

    @classmethod
    def failed(cls, case: Case, note: str, *, reason: Reason, metric: str = "time", unit: Unit = "s") -> "Record":
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


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class Result:
    """All records of one experiment on one platform, with what they were measured on and from."""

    experiment: Identifier
    platform: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """The folder of its results."""
    spec: Annotated[dict[str, Any], StoredAs(Settings), KeepOrder, AfterValidator(without_paths), WithoutPaths]
    """The values of config.yaml that this was measured with."""
    environment: Annotated[dict[str, Any], StoredAs(Environment)]
    started: Moment
    finished: Moment
    warnings: list[FreeText]
    """What disturbed the measurement, and what readers must know about the data."""
    records: Annotated[list[Record], Field(min_length=1)]
    budget_seconds: Annotated[int, Field(ge=0)] = 0
    """The share of config.yaml's `budget`, in seconds, that it was allowed to take; 0: as long as it needs."""
    spent: dict[Name, NotNegative] = field(default_factory=dict)
    """Seconds by what was done with them; what is left of the whole was spent on none of these."""
    failed_again: bool = False
    """Whether cases failed here and in the result that this one replaced: the next run leaves it alone."""
    schema_version: Literal[5] = 5

    check_complete = complete()

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
