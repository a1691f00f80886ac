"""How long each experiment may take on these devices, and its share of config.yaml's `budget`."""

import math
from collections.abc import Mapping

from scalecard.distributed.layout import layouts

# Devices of one node, and fresh processes, for which config.yaml states an experiment's `minutes`.
STATED_FOR = {"full": (8, 3), "quick": (2, 1)}
SLACK = 5  # minutes of a cluster's job beyond that: to start, and for what is being compared when time is over


def estimated(minutes: int, scale: str, *, devices: int | None, nodes: int, processes: int) -> int:
    """The `minutes` of config.yaml for these devices per node (None: not known yet), nodes and processes.

    In proportion to the processes, and to the numbers of devices and nodes that are swept.
    """
    usual_devices, usual_processes = STATED_FOR[scale]
    swept = len(layouts(devices or usual_devices, nodes)) / len(layouts(usual_devices, 1))
    return math.ceil(minutes * swept * processes / usual_processes)


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
