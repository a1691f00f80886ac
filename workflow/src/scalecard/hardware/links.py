"""The way from one device to another, on which several copies may run at once without waiting for each other.

On the default streams PyTorch makes a copy wait for both GPUs, so a GPU that sends while it receives does one after the
other. A link therefore has a stream of its own at either end.
"""

import contextlib
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from scalecard.hardware.device_timestamps import EventMark, Mark
from scalecard.hardware.devices import Device


class Link:
    """Copies from `source` to `target`; a CPU worker that is the target copies itself."""

    def __init__(self, source: Device, target: Device) -> None:
        self.source, self.target = source, target
        gpus = [end.torch for end in (source, target) if end.torch.type != "cpu"]
        self._streams = [torch.get_device_module(gpu).Stream(gpu) for gpu in gpus]

    @property
    def fault(self) -> str:
        """Of either end."""
        return self.source.fault or self.target.fault

    @property
    def peer(self) -> bool | None:
        """Whether the GPUs reach each other's memory; None without GPUs."""
        if not self._streams:
            return None
        reaches = torch.get_device_module(self._streams[0].device).can_device_access_peer
        return bool(reaches(self.target.torch, self.source.torch))

    def copying(self, there: Tensor, here: Tensor) -> Callable[[], object]:
        """What copies `here`, on the source, to `there`, on the target."""
        if not self._streams:
            return self.target.repeating(_copy, there, here)
        return partial(self._beside, there, here)

    def _beside(self, there: Tensor, here: Tensor) -> None:
        with contextlib.ExitStack() as streams:
            for stream in self._streams:
                streams.enter_context(torch.get_device_module(stream.device).stream(stream))
            _copy(there, here)

    def synchronize(self) -> None:
        """Wait for the copies."""
        for end in (self.source, self.target):
            end.synchronize()

    def mark(self, clock: Callable[[], int]) -> Mark:
        """The point after everything that this link was given."""
        return EventMark(self._streams[:1]) if self._streams else self.target.mark(clock)

    def __str__(self) -> str:
        return f"link from {self.source} to {self.target}"


def _copy(there: Tensor, here: Tensor) -> None:
    there.copy_(here, non_blocking=True)
