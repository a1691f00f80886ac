"""Groups that heat or the power supply slowed down are measured once more, until that was in vain once in this run.

A laptop that always throttles would take twice the time for the same numbers. All processes of a run know of it, and
every rank does as the leading one says.
"""

from scalecard import progress
from scalecard.measuring import shared_decisions
from scalecard.measuring.timer import Bench

IN_VAIN = "slowed-down-once-more"


def is_worthwhile(slowed: str, bench: Bench) -> bool:
    """Whether to measure a group once more that was `slowed` by this, or by nothing if it is ''."""
    if not slowed:
        return False
    (in_vain,) = bench.ranks.maximum([float(bench.ranks.leads and shared_decisions.is_decided(IN_VAIN))])
    return not in_vain


def note(slowed: str, bench: Bench) -> None:
    """Remember, and say, if a repeated group was slowed down as well."""
    if slowed and bench.ranks.leads:
        shared_decisions.decided(IN_VAIN, lambda: slowed)
        progress.say(f"slowed down again ({slowed}): from now on nothing is measured once more")
