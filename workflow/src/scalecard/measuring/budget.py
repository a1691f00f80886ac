"""How long an experiment may still measure: its share of config.yaml's `budget`.

Every variant gets its part of the time that it may take without a budget, and every case is measured in one process
before any is in further ones. If that still takes too long, what is being compared gets the fewest rounds that make an
interval, and what has not begun is left out.
"""

import math
import os
import time

from scalecard.measuring.bench import Ranks

# Inherited by the processes that measure. The deadline is by the monotonic clock, which a machine's processes share.
DEADLINE, PACE = "SCALECARD_DEADLINE", "SCALECARD_PACE"
OVER = "the experiment's share of the time budget was used up"


def begin(seconds: int | None, usual: int) -> None:
    """From now on this process, and those that it starts, have so many seconds of the usual ones; None: all they need.

    Each variant gets the same part of its `max_seconds`.
    """
    os.environ[DEADLINE] = str(time.monotonic() + (math.inf if seconds is None else seconds))
    os.environ[PACE] = str(min(1.0, seconds / usual) if seconds and usual else 1.0)


def pace() -> float:
    """The part of `max_seconds` that each variant gets."""
    return float(os.environ.get(PACE, "1"))


def left() -> float:
    """The seconds that are left."""
    return float(os.environ.get(DEADLINE, "inf")) - time.monotonic()


def over(ranks: Ranks) -> bool:
    """Whether it is used up: for all ranks if it is for the leading one."""
    (used_up,) = ranks.maximum([float(ranks.leads and left() <= 0)])
    return bool(used_up)
