"""What timing one variant leaves: its samples, how they were taken, and the state of the hardware meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scalecard.schema import Case, Check, Record


@dataclass(kw_only=True)
class Timing:
    """The samples of one variant, one a round: seconds a call until enqueued, and until complete."""

    rounds_id: str
    iterations: int = 1
    enqueue: list[float] = field(default_factory=list)
    completion: list[float] = field(default_factory=list)
    stopped: str = ""
    failure: str = ""
    joules: float | None = None
    state: dict[str, Any] = field(default_factory=dict)

    def fail(self, why: str) -> None:
        self.failure = why
        self.enqueue.clear()
        self.completion.clear()

    def record(
        self, case: Case, *, metric: str = "time", enqueue: bool = False, checks: Sequence[Check] = ()
    ) -> Record:
        """These samples as a record, or a failed record where the variant ran out of memory."""
        if self.failure:
            return Record(case=case, metric=metric, unit="s", status="failed", note=self.failure)
        return Record(
            case=case,
            metric=metric,
            unit="s",
            samples=self.enqueue if enqueue else self.completion,
            checks=list(checks),
            telemetry=[self.telemetry],
        )

    @property
    def telemetry(self) -> dict[str, Any]:
        """How these samples were taken, in which state of the hardware; joules a call where the GPUs count them."""
        calls = self.iterations * len(self.completion)
        return {
            "rounds_id": self.rounds_id,
            "iterations": self.iterations,
            "stopped": self.stopped,
            "joules": self.joules / calls if self.joules is not None and calls else None,
            **self.state,
        }
