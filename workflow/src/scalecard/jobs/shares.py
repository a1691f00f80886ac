"""Shares config.yaml's `budget` among the experiments, in proportion to the minutes that each may take without one."""

import math
from collections.abc import Mapping

SLACK = 5  # minutes of a cluster's job beyond that: to start, and for what is being compared when time is over


def shares(budget: float | None, minutes: Mapping[str, int], *, limited: bool) -> dict[str, int]:
    """Each experiment's share of so many minutes, in seconds; its own minutes, if the budget is enough for all.

    Empty without a budget, unless the time is `limited` by a cluster's scheduler: a job that it ends loses everything.
    """
    if budget is None and not limited:
        return {}
    part = min(1.0, (budget or math.inf) / sum(minutes.values()))
    return {name: max(1, round(60 * own * part)) for name, own in minutes.items()}


def job_minutes(minutes: Mapping[str, int], seconds: Mapping[str, int]) -> dict[str, int]:
    """The time limits to ask a cluster's scheduler for."""
    return {name: SLACK + math.ceil(seconds.get(name, 60 * own) / 60) for name, own in minutes.items()}
