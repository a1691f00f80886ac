"""Odd ones out: a device, pair or node that is slower than its like in the same run, however good the others are."""

from collections.abc import Sequence
from statistics import median

from scalecard.report.health.measured import Rate

NOTABLE = 0.9  # of the median of its like: what lies below, with its whole interval, is odd
OF_LATENCY = 2 / 3  # half as long again; the thread that starts a small copy makes more difference than a link


class Groups:
    """The rates of one run by what is alike."""

    def __init__(self, rates: Sequence[Rate]) -> None:
        self._like: dict[object, list[Rate]] = {}
        for rate in rates:
            self._like.setdefault(rate.like, []).append(rate)

    def peers(self, rate: Rate) -> list[Rate]:
        """Those that are like it, itself included."""
        return self._like[rate.like]

    def normal(self, rate: Rate) -> float | None:
        """What is normal for its like: their median or, of two, the faster one; None without peers."""
        values = [peer.value for peer in self.peers(rate)]
        if len(values) < 2:
            return None
        return max(values) if len(values) == 2 else median(values)

    def is_odd(self, rate: Rate) -> bool:
        """Whether its whole interval lies below a tenth less than what is normal.

        Of two neither is the normal one: the slower is odd only if even the least that the faster may reach is more.
        """
        peers, normal = self.peers(rate), self.normal(rate)
        if rate.high is None or normal is None:
            return False
        line = OF_LATENCY if rate.kind == "latency" else NOTABLE
        if len(peers) == 2:
            (other,) = (peer for peer in peers if peer is not rate)
            return other.low is not None and rate.high < line * other.low
        return rate.high < line * normal
