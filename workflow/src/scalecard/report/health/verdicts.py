"""Every part of a machine judged, and the alerts that follow: one for each fault."""

from scalecard.records.record import Result
from scalecard.report.health import of_counters, of_rates, of_state
from scalecard.report.health.alerts import merged
from scalecard.report.health.once import once
from scalecard.report.health.verdict import Verdict

__all__ = ["Verdict", "alerts", "verdicts"]


@once
def verdicts(result: Result) -> list[Verdict]:
    """What is said of every device, link, collective, node and counter, also if it is normal."""
    return [*of_state.judged(result), *of_counters.judged(result), *of_rates.judged(result)]


@once
def alerts(result: Result) -> list[Verdict]:
    """Only what is not normal, one for each fault, the worst first; where else a fault shows is in `seen_in`."""
    return merged(verdicts(result))
