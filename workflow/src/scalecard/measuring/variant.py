"""One of the pieces of work that are timed side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scalecard.hardware.devices import Device
from scalecard.records.record import Case, Check

Work = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What to call, the case that its records carry, and what was proven about it.

    `name` is for the terminal and is unique among the variants of one measurement. `devices` are those that the work
    uses; they are given if its peak memory is measured too.
    """

    name: str
    case: Case
    work: Work
    checks: Sequence[Check] = ()
    devices: Sequence[Device] = ()
