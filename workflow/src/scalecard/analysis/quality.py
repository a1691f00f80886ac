"""How far numbers can be trusted: what was proven, what slowed the hardware down, and how often they were taken."""

from collections.abc import Sequence

from scalecard.analysis.comparison import compare
from scalecard.records.record import Record, Result
from scalecard.records.telemetry import Slowdown, Telemetry

STATUSES = {"ok": "measured", "skipped": "skipped", "failed": "failed"}


def sentences(results: Sequence[Result]) -> list[str]:
    """One per reason to trust the numbers, or not to: what was found, then the warnings."""
    warnings = [f"Warning: {text}." for _, text in compare.warnings("", results)]
    return [*found(results), *(warnings or ["No warnings."])]


def found(results: Sequence[Result]) -> list[str]:
    """The reasons without the warnings."""
    records = [record for result in results for record in result.records]
    timed = [record for record in records if record.telemetry]
    return [_cases(results), _proofs(records), _throttled(timed), _processes(timed)]


def _cases(results: Sequence[Result]) -> str:
    counts = [f"{sum(r.count(status) for r in results)} {word}" for status, word in STATUSES.items()]
    return f"Cases: {', '.join(counts)}."


def _proofs(records: Sequence[Record]) -> str:
    checks = [check.passed for record in records for check in record.checks]
    counts = [count.passed for record in records for count in record.work]
    proofs = f"{sum(checks)} of {len(checks)} passed before timing"
    return f"Proofs: {proofs}; {sum(counts)} of {len(counts)} counts of work are as expected."


def _throttled(timed: Sequence[Record]) -> str:
    """By the driver's reasons; a power cap is a setting of the GPU, and does not count."""
    watched = [record for record in timed if any(entry.state and entry.state.gpus for entry in record.telemetry)]
    if not watched:
        return "Throttled: not known, because no GPU was watched."
    slowed = sum(any(map(_slowed_down, record.telemetry)) for record in watched)
    return f"Throttled: in {slowed} of {len(watched)} timed cases a GPU was slowed down."


def _slowed_down(entry: Telemetry) -> bool:
    gpus = entry.state.gpus if entry.state else []
    return any(set(gpu.reasons) & {*Slowdown} for gpu in gpus)


def _processes(timed: Sequence[Record]) -> str:
    few, most = (number([len(record.samples) for record in timed], default=0) for number in (min, max))
    if most == 1:
        return "Processes: one per case, so the spread between processes is not known."
    return f"Processes: {most if few == most else f'{few} to {most}'} fresh ones per case."
