"""Every part of a machine judged, and the alerts that follow: one for each fault."""

from scalecard.records.record import Result
from scalecard.report.health import of_counters, of_faults, of_rates, of_state
from scalecard.report.health.alerts import merged
from scalecard.report.health.once import once
from scalecard.report.health.verdict import Verdict

__all__ = ["Verdict", "alerts", "verdicts"]


@once
def verdicts(result: Result) -> list[Verdict]:
    """What is said of every device, link, collective, node and counter, also if it is normal."""
    judges = (of_faults, of_state, of_counters, of_rates)
    return [verdict for judge in judges for verdict in judge.judged(result)]


@once
def alerts(result: Result) -> list[Verdict]:
    """Only what is not normal, one for each fault, the worst first; where else a fault shows is in `seen_in`."""
    return merged(verdicts(result))
