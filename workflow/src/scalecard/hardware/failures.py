"""Why a piece of work failed: told from the error that it raised, in the one place that reads libraries' messages."""

import torch

from scalecard.hardware.memory import is_out_of_memory
from scalecard.records.record import Reason

LONGEST = 200  # characters of an error's first line


class DeviceFault(RuntimeError):
    """The driver reported an error of a GPU, which can compute nothing more for this process; the message names it."""

    reason = Reason.DEVICE_FAULT


def reason_of(error: BaseException) -> Reason:
    """The reason that a record has for this error. Errors of ours name it themselves, by an attribute `reason`."""
    if is_out_of_memory(error):
        return Reason.OUT_OF_MEMORY
    if isinstance(error, torch.AcceleratorError):
        return Reason.DEVICE_FAULT
    named = getattr(error, "reason", None)
    return named if isinstance(named, Reason) else Reason.ERROR


def first_line(error: BaseException) -> str:
    """What an error says, without the stack and the advice that libraries add; its kind if it says nothing."""
    return (str(error).splitlines() or [""])[0][:LONGEST] or type(error).__name__


def in_one_line(error: BaseException) -> str:
    """The kind of an error and what it says."""
    kind, said = type(error).__name__, first_line(error)
    return said if said == kind else f"{kind}: {said}"
