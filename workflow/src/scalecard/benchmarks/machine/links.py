"""Copies between two devices, each pair on a link of its own."""

from collections.abc import Iterator

from scalecard.benchmarks.machine.copies import empty, filled
from scalecard.hardware.links import Link
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.proof import same_values
from scalecard.records.record import Check


def subject(link: Link, seed: int, size: int) -> Subject:
    """`size` bytes from the link's source to its target."""
    here = filled(size, "device", link.source, seed)
    there = empty(size, "device", link.target)
    for end in (link.source, link.target):
        end.synchronize()
    work = link.copying(there, here)

    def prove() -> Iterator[Check]:
        there.zero_()
        link.synchronize()
        work()
        link.synchronize()
        yield same_values("contents after waiting, byte by byte", there, here.to(there.device))

    return Subject(work=work, prove=prove, expected={"copied bytes": here.nbytes})


def shifts(number: int) -> Iterator[list[tuple[int, int]]]:
    """Every ordered pair of devices once, in turns in which each device sends to one other and receives from one."""
    for distance in range(1, number):
        yield [(source, (source + distance) % number) for source in range(number)]
