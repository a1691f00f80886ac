"""The outcome of timing one variant: its samples, how they were taken, and the hardware's state meanwhile."""

from dataclasses import dataclass, field, replace
from statistics import median

from scalecard.measuring.case_variant import Prepared, Variant
from scalecard.records.record import HardwareState, Reason, Record, Telemetry, Unit

NOT_ASKED = "only training steps and epochs are measured over a second"


@dataclass(kw_only=True)
class Timing:
    """The samples of one variant, one per round: seconds per call until enqueued, and until complete.

    Both are the slowest rank's; `own` is how long this rank took until complete. `prepared` is None if it failed
    before it could be timed, or if it was `left_out`, and why. `accuracies` has one value per epoch. `joules`
    were used by `metered` calls; if there are none, `no_joules` says why.
    """

    variant: Variant
    rounds_id: str = ""
    prepared: Prepared | None = None
    left_out: str = ""
    iterations: int = 1
    enqueue: list[float] = field(default_factory=list)
    completion: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    stopped: str = ""
    failure: str = ""
    reason: Reason = Reason.ERROR
    joules: float | None = None
    metered: int = 0
    no_joules: str = NOT_ASKED
    measured_again: str = ""
    state: HardwareState | None = None

    def again(self, rounds_id: str) -> "Timing":
        """The same variant, as it was prepared, without samples."""
        return Timing(
            variant=self.variant,
            prepared=self.prepared,
            left_out=self.left_out,
            failure=self.failure,
            reason=self.reason,
            rounds_id=rounds_id,
        )

    def fail(self, note: str, reason: Reason) -> None:
        """Drop the samples: the variant ran out of memory, or what it computed is wrong."""
        self.failure, self.reason = note, reason
        for tensor in self.prepared.subject.parameters() if self.prepared else ():
            tensor.grad = None  # a half-finished step leaves some, and variants may share their parameters
        self.enqueue.clear()
        self.completion.clear()
        self.own.clear()
        self.accuracies.clear()

    def record(self, metric: str = "time") -> Record:
        """The completion times with what was proven and counted, or why there are none."""
        if absent := self._absent(metric):
            return absent
        assert self.prepared
        return replace(self._times(metric, self.completion), checks=self.prepared.checks, work=self.prepared.work)

    def enqueue_record(self, metric: str = "enqueue_time") -> Record:
        """The enqueue times; what was proven is recorded with the completion times."""
        return self._absent(metric) or self._times(metric, self.enqueue)

    def accuracy_record(self) -> Record:
        """The share of test images that were classified correctly, after each epoch."""
        return self._absent("accuracy", "fraction") or Record(
            case=self.variant.case, metric="accuracy", unit="fraction", samples=[self.accuracies]
        )

    def _absent(self, metric: str, unit: Unit = "s") -> Record | None:
        """A skipped or failed record, if there are no samples."""
        if self.left_out:
            return Record.skipped(self.variant.case, self.left_out, reason=Reason.NO_TIME, metric=metric, unit=unit)
        if self.failure or self.prepared is None:
            return Record.failed(self.variant.case, self.failure, reason=self.reason, metric=metric, unit=unit)
        return None

    def _times(self, metric: str, samples: list[float]) -> Record:
        return Record(case=self.variant.case, metric=metric, unit="s", samples=[samples], telemetry=[self.telemetry])

    @property
    def telemetry(self) -> Telemetry:
        """How these samples were taken; joules per call if the GPUs count them."""
        return Telemetry(
            rounds_id=self.rounds_id,
            iterations=self.iterations,
            stopped=self.stopped,
            enqueue=median(self.enqueue) if self.enqueue else None,
            joules=self.joules / self.metered if self.joules is not None and self.metered else None,
            no_joules=self.no_joules,
            measured_again=self.measured_again,
            state=self.state,
        )
