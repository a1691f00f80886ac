"""Verdicts on rates: outliers, which are slower than their peers in this run, and rates below the hardware's limit."""

from collections.abc import Iterator, Sequence
from statistics import median

from scalecard.analysis.health import measured_rates
from scalecard.analysis.health.measured_rates import Rate
from scalecard.analysis.health.verdict import Kind, Verdict
from scalecard.records.record import Result

NOTABLE = 0.9  # of the median of its peers: what lies below, with its whole interval, is odd
OF_LATENCY = 2 / 3  # half as long again; the thread that starts a small copy makes more difference than a link


class Groups:
    """The rates of one run by what is alike."""

    def __init__(self, rates: Sequence[Rate]) -> None:
        self._like: dict[object, list[Rate]] = {}
        for rate in sorted(rates, key=_low):
            self._like.setdefault(rate.like, []).append(rate)

    def peers(self, rate: Rate) -> list[Rate]:
        """Those that are like it, itself included."""
        return self._like[rate.like]

    def slowest_other(self, rate: Rate) -> Rate | None:
        """The peer whose interval begins lowest; None without any to compare with.

        Of latencies it is one of other devices, because what delays a device may delay all of its copies.
        """
        apart = (
            peer for peer in self.peers(rate) if rate.kind is not Kind.LATENCY or not set(peer.place) & set(rate.place)
        )
        return next((peer for peer in apart if peer is not rate), None)

    def normal(self, rate: Rate) -> float | None:
        """What is normal for its peers: their median or, of two, the faster one; None without any to compare with."""
        if self.slowest_other(rate) is None:
            return None
        values = [peer.value for peer in self.peers(rate)]
        return max(values) if len(values) == 2 else median(values)

    def is_odd(self, rate: Rate) -> bool:
        """Whether its whole interval lies below a tenth less than what is normal.

        Of two neither is the normal one: the slower is odd only if even the least that the faster may reach is more.
        Small copies are noisy, so the whole interval of a latency must lie below those of all others, too.
        """
        normal, other = self.normal(rate), self.slowest_other(rate)
        if rate.high is None or normal is None or other is None:
            return False
        if rate.kind is Kind.LATENCY:
            return rate.high < min(OF_LATENCY * normal, _low(other))
        return rate.high < NOTABLE * (_low(other) if len(self.peers(rate)) == 2 else normal)


def _low(rate: Rate) -> float:
    return rate.low or 0.0


def rates(result: Result) -> Iterator[Verdict]:
    """One for every rate that was measured."""
    found = measured_rates.rates(result)
    groups = Groups(found)
    yield from (_verdict(rate, groups) for rate in found)


def _verdict(rate: Rate, groups: Groups) -> Verdict:
    limit = rate.limit
    share = rate.value / limit.rate if limit else None
    low = bool(limit and share is not None and share < limit.least)
    word = "odd one out" if groups.is_odd(rate) else "low" if low else _fine(rate, groups)
    return Verdict(
        part=rate.part,
        who=rate.who,
        measured=rate.measured,
        value=rate.text + (f", {limit.share(rate.value)}" if limit else ""),
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
    parts = []
    normal, count = groups.normal(rate), len(groups.peers(rate))
    if normal is not None:
        parts.append(f"{rate.in_words(normal)} is the {'faster of two' if count == 2 else f'median of {count}'}")
    if rate.limit:
        parts.append(f"{rate.limit.normal} of {rate.in_words(rate.limit.rate)} is normal")
    return "; ".join(parts) or "nothing is known to compare it with"
