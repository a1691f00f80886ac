"""Is every part of this machine as it should be?

A placeholder, with which the report's section can be registered and tested; the experiment takes its place.

It measures nothing, so that nothing is said of a machine by mistake.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from scalecard.hardware.machine import Machine
from scalecard.measuring.spec import Common
from scalecard.records.record import Record


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    pass


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Nothing yet."""
    yield Record.skipped({"part": "compute"}, "not written yet")
