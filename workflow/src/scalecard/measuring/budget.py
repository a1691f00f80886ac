"""How long an experiment may still measure: its share of config.yaml's `budget`.

Every case is measured in one process before any is in further ones. If not even that fits, every variant gets a part of
its time. If that still takes too long, what is being compared gets the fewest rounds that make an
interval, and what has not begun is left out.
"""

import math
import os
import time

from scalecard.measuring.timer import Ranks

# Inherited by the processes that measure. The deadline is by the monotonic clock, which a machine's processes share.
DEADLINE, PACE = "SCALECARD_DEADLINE", "SCALECARD_PACE"
OVER = "the experiment's share of the time budget was used up"
LEFT_OUT = f"left out: {OVER}"


def begin(seconds: float, usual: float) -> None:
    """From now on this process, and those that it starts, have so many seconds; 0: as many as they need.

    If one process usually takes longer than that, each variant gets the same part of its `max_seconds`.
    """
    os.environ[DEADLINE] = str(time.monotonic() + (seconds or math.inf))
    os.environ[PACE] = str(min(1.0, seconds / usual) if seconds and usual else 1.0)


def pace() -> float:
    """The part of `max_seconds` that each variant gets."""
    return float(os.environ.get(PACE, "1"))


def deadline() -> float:
    """When it is used up, by the monotonic clock."""
    return float(os.environ.get(DEADLINE, "inf"))


def left() -> float:
    """The seconds that are left."""
    return deadline() - time.monotonic()


def over(ranks: Ranks) -> bool:
    """Whether it is used up: for all ranks if it is for the leading one."""
    (used_up,) = ranks.maximum([float(ranks.leads and left() <= 0)])
    return bool(used_up)
