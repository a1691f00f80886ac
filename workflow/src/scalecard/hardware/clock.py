"""When a measurement began and ended: by the system's clock, corrected with the monotonic clock."""

import time
from datetime import UTC, datetime, timedelta

TOLERANCE = 5.0  # seconds; slower corrections of the clock are everyday


class Stopwatch:
    """Runs from when it is made until stop(); `finished` never lies before `started`."""

    def __init__(self) -> None:
        self._began, self._ticks = _now(), _seconds()
        self._ended = self._began
        self._set_by = 0.0

    def stop(self) -> None:
        """The measurement has ended now."""
        self._ended = self._began + timedelta(seconds=_seconds() - self._ticks)
        self._set_by = (_now() - self._ended).total_seconds()

    @property
    def started(self) -> str:
        """ISO 8601, UTC."""
        return self._began.isoformat(timespec="milliseconds")

    @property
    def finished(self) -> str:
        """The start and the time that really passed."""
        return self._ended.isoformat(timespec="milliseconds")

    @property
    def remarks(self) -> list[str]:
        """That the system's clock was set meanwhile, if it was."""
        if abs(self._set_by) <= TOLERANCE:
            return []
        way = "back" if self._set_by < 0 else "ahead"
        return [
            f"the system's clock was set {way} by {abs(self._set_by):.0f} s during the measurement; `finished` is"
            " `started` and the time that really passed"
        ]


def _now() -> datetime:
    return datetime.now(UTC)


def _seconds() -> float:
    """Since boot, time asleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
