"""The outcome of timing one variant: its samples, how they were taken, and the hardware's state meanwhile."""

from dataclasses import dataclass, field

from scalecard.measuring.variant import Variant
from scalecard.records.record import Record
from scalecard.records.telemetry import HardwareState, Telemetry


@dataclass(kw_only=True)
class Timing:
    """The samples of one variant, one per round: seconds per call until enqueued, and until complete."""

    variant: Variant
    rounds_id: str
    iterations: int = 1
    enqueue: list[float] = field(default_factory=list)
    completion: list[float] = field(default_factory=list)
    stopped: str = ""
    failure: str = ""
    joules: float | None = None
    measured_again: str = ""
    state: HardwareState | None = None

    def fail(self, reason: str) -> None:
        """Drop the samples: the variant ran out of memory."""
        self.failure = reason
        self.enqueue.clear()
        self.completion.clear()

    def record(self, metric: str = "time") -> Record:
        """The completion times with what was proven, or a failed record if the variant ran out of memory."""
        return self._record(metric, self.completion)

    def enqueue_record(self, metric: str = "enqueue_time") -> Record:
        """The enqueue times; what was proven is recorded with the completion times."""
        return self._record(metric, self.enqueue, proven=False)

    def _record(self, metric: str, samples: list[float], *, proven: bool = True) -> Record:
        if self.failure:
            return Record.failed(self.variant.case, self.failure, metric=metric)
        return Record(
            case=self.variant.case,
            metric=metric,
            unit="s",
            samples=[samples],
            checks=list(self.variant.checks) if proven else [],
            telemetry=[self.telemetry],
        )

    @property
    def telemetry(self) -> Telemetry:
        """How these samples were taken; joules per call if the GPUs count them."""
        calls = self.iterations * len(self.completion)
        return Telemetry(
            rounds_id=self.rounds_id,
            iterations=self.iterations,
            stopped=self.stopped,
            joules=self.joules / calls if self.joules is not None and calls else None,
            measured_again=self.measured_again,
            state=self.state,
        )
