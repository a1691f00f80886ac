"""Did the clock stop before a device was done? What the devices themselves say about one block is beside the clock.

A `synchronize()` that waits for nothing, or for the wrong stream, leaves no trace in the samples: they are only too
small. So each device marks in its own queue where a block begins and ends. It passes both marks while the clock runs,
unless the clock was stopped too early.
"""

from collections.abc import Callable, Sequence

from scalecard.hardware.device_timestamps import Mark, Marking

# The two clocks may disagree by so much: a GPU's runs at a rate of its own, and times events to half a microsecond.
SHARE, SECONDS = 0.05, 50e-6


class NotSynchronised(RuntimeError):
    """The clock was stopped before a device was done: the times would be too short."""


class OwnTime:
    """Marks before and after one block on every device, and the clock (nanoseconds) that times it.

    Both marks are set while the clock runs, so however long a thread waits for its turn on a busy machine, the time
    between them is never longer than the clock's.
    """

    def __init__(self, devices: Sequence[object], clock: Callable[[], int]) -> None:
        self._devices = [device for device in devices if isinstance(device, Marking)]
        self._clock, self._started = clock, clock()
        self._before = self._marks()
        self._after: list[Mark] = []

    def work_submitted(self) -> None:
        """Mark the end of the block, before anybody waits for it."""
        self._after = self._marks()

    def overrun(self, stopped: int) -> tuple[float, str]:
        """By how many seconds a device worked beyond the slack after the clock stopped, and that in words; or 0 and ''.

        Waits for the marks, so the clock must have stopped.
        """
        ran = (stopped - self._started) / 1e9
        worst, told = 0.0, ""
        for device, before, after in zip(self._devices, self._before, self._after, strict=True):
            worked = after.seconds_since(before)
            beyond = worked - ran * (1 + SHARE) - SECONDS
            if beyond > worst:
                worst = beyond
                told = f"{device} worked for {1e3 * worked:.4g} ms, but the clock stopped after {1e3 * ran:.4g} ms"
        return worst, told

    def _marks(self) -> list[Mark]:
        return [device.mark(self._clock) for device in self._devices]
