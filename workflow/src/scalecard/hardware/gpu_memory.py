"""The GPUs' memory: what to do if it is too small, and giving it back."""

import contextlib
import gc
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

import torch

from scalecard.hardware.memory import is_out_of_memory

T = TypeVar("T")


def or_on_host(work: Callable[[torch.device], T], device: torch.device) -> T:
    """What work(device) returns or, if the device's memory is too small for it, work(the CPU)."""
    places = [device] if device.type == "cpu" else [device, torch.device("cpu")]
    return first_that_fits(partial(work, place) for place in places)


def first_that_fits(works: Iterable[Callable[[], T]]) -> T:
    """What the first of these returns for which there is enough memory; if there is none, the last one's error."""
    failure: BaseException = MemoryError("nothing to do")
    for work in works:
        try:
            return work()
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            failure = error.with_traceback(None)  # its frames hold the memory
        empty_cache()
    raise failure


def empty_cache() -> None:
    """Give cached GPU memory back between cases."""
    if torch.accelerator.is_available():
        gc.collect()  # cycles hold tensors too
        with contextlib.suppress(torch.AcceleratorError):  # a GPU with a fault keeps its memory
            torch.accelerator.empty_cache()
