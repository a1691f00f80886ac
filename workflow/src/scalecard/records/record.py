"""What a measurement leaves behind: Result, Record, Check and Count.

Raw samples are stored, one list per process; everything computed from them is a property.
"""

import functools
import math
import statistics
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from scalecard.records.statistics import Interval, Ratio, between, larger, paired_ratio, unpaired_ratio, within
from scalecard.records.telemetry import Telemetry

SCHEMA_VERSION = 5
BOUND = 0.9  # of the time

Scalar = str | int | float | bool | None
Case = dict[str, Scalar]


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
