"""Proofs on other numbers of ranks than are timed: on three, because two hide what a third shows; and on one alone.

Three only without GPUs: there can be as many CPU ranks as one likes, and a GPU takes one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from scalecard import progress
from scalecard.distributed import Layout
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch
from scalecard.hardware.machine import Machine
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.records.record import Check

RANKS = 3
Proofs = Mapping[str, Sequence[Check]]


def proven_on_more_ranks(
    prove: Callable[..., Proofs],
    *args: Any,
    timed: Sequence[Layout],
    machine: Machine,
    devices_each: int = 1,
) -> Proofs:
    """What prove(context, *args) returns; nothing if more ranks than two are timed, or only one.

    Checks may have failed; RanksFailed if a rank fails otherwise.
    """
    if not machine.emulated or max((layout.ranks for layout in timed), default=1) != 2:
        return {}
    progress.doing(f"proving on {RANKS} ranks as well")
    found: list[Proofs] = launch(prove, *args, layout=Layout(RANKS), machine=machine, devices_each=devices_each)
    return found[0] if found else {}  # another node than the first takes no part


def with_proofs(variants: Sequence[Variant], proven: Proofs) -> list[Variant]:
    """The variants with what was proven of those with their names."""
    return [replace(variant, proven=proven.get(variant.name, ())) for variant in variants]


def driven_by_the_first(ctx: RankContext, build: Callable[[Any], Subject]) -> Callable[[Any], Subject]:
    """A builder of the same work on the first rank; on the others, of waiting for it, with the same proof."""

    def built(setting: Any) -> Subject:
        subject = build(setting) if ctx.leads else None
        names: list[str] = ctx.all_gather(list(subject.expected) if subject else None)[0]

        def prove() -> list[Check]:
            proven: list[list[Check]] = ctx.all_gather([*subject.prove()] if subject else None)
            return proven[0]

        if subject:
            return replace(subject, prove=prove)
        # The first rank works, and the round ends for all ranks at once.
        return Subject(work=lambda: None, prove=prove, expected=dict.fromkeys(names, 0.0))

    return built
