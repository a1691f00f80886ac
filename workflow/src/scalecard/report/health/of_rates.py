"""Verdicts on rates: beside their peers in this run, and beside the hardware's limit."""

from collections.abc import Iterator

from scalecard.records.record import Result
from scalecard.report import units
from scalecard.report.health import measured, rate_text
from scalecard.report.health.measured import Rate
from scalecard.report.health.peers import Groups
from scalecard.report.health.verdict import Verdict


def judged(result: Result) -> Iterator[Verdict]:
    """One for every rate that was measured."""
    rates = measured.rates(result)
    groups = Groups(rates)
    yield from (_judged(rate, groups) for rate in rates)


def _judged(rate: Rate, groups: Groups) -> Verdict:
    limit = rate.limit
    share = rate.value / limit.rate if limit else None
    low = bool(limit and share is not None and share < limit.least)
    word = "odd one out" if groups.is_odd(rate) else "low" if low else _fine(rate, groups)
    return Verdict(
        part=rate.part,
        who=rate_text.who(rate),
        measured=rate_text.measured(rate),
        value=rate.text + (f", {units.percent(share)} of {limit.name}" if limit and share else ""),
        normal=_normal(rate, groups),
        verdict=word,
        share=share,
        kind=rate.kind,
        place=rate.place,
        low=low,
    )


def _fine(rate: Rate, groups: Groups) -> str:
    """What is faster than the vendor's sheet says tells nothing of the device; its peers may still do."""
    known = rate.limit is not None and not rate.limit.is_exceeded_by(rate.value)
    compared = rate.high is not None and groups.slowest_other(rate) is not None
    return "normal" if known or compared else "not judged"


def _normal(rate: Rate, groups: Groups) -> str:
    said = []
    normal, count = groups.normal(rate), len(groups.peers(rate))
    if normal is not None:
        said.append(f"{rate.in_words(normal)} is the {'faster of two' if count == 2 else f'median of {count}'}")
    if rate.limit:
        said.append(f"{rate.limit.normal} of {rate.in_words(rate.limit.rate)} is normal")
    return "; ".join(said) or "nothing is known to compare it with"
