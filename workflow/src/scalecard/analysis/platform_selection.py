"""Which platforms are drawn: more than four lines in a panel, or columns of a table, are not told apart.

The others are one row each in a compact table.
"""

from collections.abc import Sequence
from datetime import datetime

from scalecard.hardware.machine import from_facts
from scalecard.records.record import Result

MOST = 4


def drawn(results: Sequence[Result], show: Sequence[str] | None = None) -> list[str]:
    """At most four platforms: the current one, which is the first result's, then those of `show` in its order.

    Without `show` those that were measured last, the latest first.
    """
    latest: dict[str, datetime] = {}
    for result in results:
        finished = datetime.fromisoformat(result.finished)
        latest[result.platform] = max(finished, latest.get(result.platform, finished))
    here = results[0].platform
    others = show if show is not None else sorted(latest, key=lambda platform: latest[platform], reverse=True)
    chosen = [platform for platform in dict.fromkeys(others) if platform in latest and platform != here]
    return [here, *chosen][:MOST]


def platform_label(result: Result) -> str:
    """As figures name it."""
    return f"{result.platform} (emulated)" if result.emulated else result.platform


def device_name(result: Result) -> str:
    """The device that the result was measured on, e.g. 'NVIDIA H200'."""
    return from_facts(result.environment["machine"]).device_name
