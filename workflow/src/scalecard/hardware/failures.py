"""Why a piece of work failed, by the error that it raised; and how to go on when a GPU's memory was too small."""

import contextlib
import gc
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from scalecard.hardware.host import is_out_of_memory
from scalecard.records.record import Reason

if TYPE_CHECKING:  # what starts the processes that measure asks for reasons as well, and imports no PyTorch
    import torch

LONGEST = 200  # characters of an error's first line
T = TypeVar("T")


class DeviceFault(RuntimeError):
    """The driver reported an error of a GPU, which can compute nothing more for this process; the message names it."""

    reason = Reason.DEVICE_FAULT


def reason_of(error: BaseException) -> Reason:
    """The reason that a record has for this error. Errors of ours name it themselves, by an attribute `reason`."""
    if is_out_of_memory(error):
        return Reason.OUT_OF_MEMORY
    if isinstance(named := getattr(error, "reason", None), Reason):
        return named
    import torch

    return Reason.DEVICE_FAULT if isinstance(error, torch.AcceleratorError) else Reason.ERROR


def first_line(error: BaseException) -> str:
    """What an error says, without the stack and the advice that libraries add; its kind if it says nothing."""
    return (str(error).splitlines() or [""])[0][:LONGEST] or type(error).__name__


def in_one_line(error: BaseException) -> str:
    """The kind of an error and what it says."""
    kind, said = type(error).__name__, first_line(error)
    return said if said == kind else f"{kind}: {said}"


def or_on_host(work: "Callable[[torch.device], T]", device: "torch.device") -> T:
    """What work(device) returns or, if the device's memory is too small for it, work(the CPU)."""
    import torch

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
    import torch

    if torch.accelerator.is_available():
        gc.collect()  # cycles hold tensors too
        with contextlib.suppress(torch.AcceleratorError):  # a GPU with a fault keeps its memory
            torch.accelerator.empty_cache()
