"""Verdicts on rates: beside their peers in this run, and beside the hardware's limit."""

from collections.abc import Iterator

from scalecard.analysis import formatting
from scalecard.analysis.health import measured_rates, rate_text
from scalecard.analysis.health.measured_rates import Rate
from scalecard.analysis.health.outliers import Groups
from scalecard.analysis.health.verdict import Verdict
from scalecard.records.record import Result


def judged(result: Result) -> Iterator[Verdict]:
    """One for every rate that was measured."""
    rates = measured_rates.rates(result)
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
        value=rate.text + (f", {formatting.percent(share)} of {limit.name}" if limit and share else ""),
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
