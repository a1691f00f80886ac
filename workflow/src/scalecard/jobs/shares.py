"""Shares config.yaml's `budget` among the experiments, in proportion to the minutes that each may take without one."""

import math
from collections.abc import Mapping

SLACK = 5  # minutes of a cluster's job beyond that: to start, and for what is being compared when time is over


def shares(budget: float | None, minutes: Mapping[str, int]) -> dict[str, int]:
    """Each experiment's share of so many minutes, in seconds; empty without a budget, or with one that is enough."""
    total = sum(minutes.values())
    if budget is None or budget >= total:
        return {}
    return {name: max(1, round(60 * own * budget / total)) for name, own in minutes.items()}


def job_minutes(minutes: Mapping[str, int], seconds: Mapping[str, int]) -> dict[str, int]:
    """The time limits to ask a cluster's scheduler for."""
    return {name: SLACK + (math.ceil(seconds[name] / 60) if seconds else own) for name, own in minutes.items()}
