"""Marks in a device's queue: the device's own record of when it got there, kept apart from the clock that times it."""

import ctypes
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch


@dataclass
class ClockMark:
    """`read` gives the nanoseconds that the device's own thread read when it got there, and waits for them."""

    read: Callable[[], int]

    def seconds_since(self, earlier: Any) -> float:
        """Seconds by the device's own clock from an earlier mark of it; waits until the device has passed this one."""
        assert isinstance(earlier, ClockMark)
        return (self.read() - earlier.read()) / 1e9


# Events that nothing refers to any more, by GPU and whether they take times. PyTorch ends the process where it destroys
# an event of a GPU that has failed, so none is ever destroyed, not even when the interpreter ends.
_free: defaultdict[tuple[torch.device, bool], list[torch.Event]] = defaultdict(list)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_free))


class Event:
    """The point that a stream has reached when it is done with all work submitted so far."""

    def __init__(self, stream: torch.Stream, *, timing: bool = False) -> None:
        self.stream, self._free = stream, _free[stream.device, timing]
        kind = torch.get_device_module(stream.device).Event
        self.event: torch.Event = self._free.pop() if self._free else kind(enable_timing=timing)
        self.event.record(stream)

    def __del__(self) -> None:
        self._free.append(self.event)


class EventMark:
    """An event in each of these streams, which may be of several GPUs; each GPU takes the time of its own."""

    def __init__(self, streams: Iterable[torch.Stream]) -> None:
        self._events = {stream: Event(stream, timing=True) for stream in streams}

    def seconds_since(self, earlier: Any) -> float:
        """The longest of the streams; one that is new since the earlier mark is left out."""
        assert isinstance(earlier, EventMark)
        for event in self._events.values():
            event.event.synchronize()
        both = [stream for stream in self._events if stream in earlier._events]
        return max(float(earlier._events[s].event.elapsed_time(self._events[s].event)) for s in both) / 1e3


Mark = ClockMark | EventMark  # a point in the work submitted to a device


@runtime_checkable
class Marking(Protocol):
    """What can mark a point in a device's queue."""

    def mark(self, clock: Callable[[], int]) -> Mark:
        """The point after all work submitted so far."""


class Place(Marking, Protocol):
    """A device, or a link between two: where work runs beside other work, and may fail alone."""

    @property
    def fault(self) -> str:
        """What the driver reported of it; else empty."""
