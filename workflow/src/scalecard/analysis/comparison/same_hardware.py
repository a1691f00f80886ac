"""Whether two platforms are the same hardware, so that a difference can be said to be a change.

The same GPUs and as many of them, or without GPUs the same CPU. Anything else, such as a driver, is a change. Between
unlike hardware a difference is no news, and what counts is how many times as fast the one is.
"""

from collections.abc import Sequence

from scalecard.analysis.machine_names import gpus, machine_of, nickname, num_nodes
from scalecard.records.record import Result


def alike(old: Sequence[Result], new: Sequence[Result]) -> bool:
    """Whether both are of the same devices, as many of them, on as many nodes."""
    return _hardware(old) == _hardware(new)


def names(old: Sequence[Result], new: Sequence[Result]) -> tuple[str, str]:
    """Both in a few words, as '4 x A100' and '8 x H100'; in more words if those do not tell the two apart."""
    short = nickname(old, short=True), nickname(new, short=True)
    return short if short[0] != short[1] else (nickname(old), nickname(new))


def _hardware(results: Sequence[Result]) -> tuple[object, ...]:
    machine = machine_of(results)
    return num_nodes(results), *(sorted(gpus(machine)) or (machine.cpu, machine.cores, machine.num_devices))
