"""Outliers: a device, pair or node that is slower than its peers in this run."""

from collections.abc import Sequence
from statistics import median

from scalecard.analysis.health.measured_rates import Rate
from scalecard.analysis.health.verdict import Kind

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
