"""Work that the first rank does by itself while the others wait, in the same rounds as what all of them do together.

It drives their devices too. The others build nothing and time nothing, but agree on what was proven and counted, so
that every rank goes through the same steps in the same order.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from scalecard.distributed.context import RankContext
from scalecard.measuring.case_variant import Subject
from scalecard.records.record import Check


def driven_by_the_first(ctx: RankContext, build: Callable[[Any], Subject]) -> Callable[[Any], Subject]:
    """A builder of the same work on the first rank; on the others, of waiting for it, with the same proof."""

    def built(setting: Any) -> Subject:
        subject = build(setting) if ctx.leads else None
        names: list[str] = ctx.all_gather(list(subject.expected) if subject else None)[0]
        if subject is None:
            return Subject(work=_wait, prove=lambda: _told(ctx, None), expected=dict.fromkeys(names, 0.0))
        return replace(subject, prove=lambda: _told(ctx, subject))

    return built


def _told(ctx: RankContext, subject: Subject | None) -> Iterator[Check]:
    """What the first rank proved, on every rank."""
    checks: list[Check] = ctx.all_gather([*subject.prove()] if subject else None)[0]
    yield from checks


def _wait() -> None:
    """The first rank works: the round ends for all ranks at once."""
