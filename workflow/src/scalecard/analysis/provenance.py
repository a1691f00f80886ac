"""How numbers came about and where, in one sentence each, and how far they can be trusted."""

from collections.abc import Sequence

from scalecard.analysis import compare
from scalecard.hardware.machine import from_facts
from scalecard.records.record import Record, Result, Slowdown, Telemetry

DIGITS = 12  # of the container's digest; the result has all of them
METHOD = (
    "A step is the median of its samples, with the 95 % interval of that median; speed-up is the rate over that of one"
    " device alone, and efficiency the speed-up per device; with strong scaling all devices share the batch of one,"
    " with weak scaling each has as many samples; every case was proven to train what one device trains before it was"
    " timed."
)
STATUSES = {"ok": "measured", "skipped": "skipped", "failed": "failed"}
EMULATED = " CPU workers and CPU ranks stood in for devices: the numbers say nothing about GPUs."


def provenance(results: Sequence[Result]) -> str:
    """Machine, driver, software, image, code and day: 'Measured by ScaleCard on 8 x NVIDIA H100 ...'."""
    environment = results[0].environment
    image = environment["container"]
    facts = [
        from_facts(environment["machine"]).describe(),
        f"PyTorch {environment['torch']}",
        f"container {shortened(image)}" if image else "no container",
        f"commit {', '.join(commits(results))}",
    ]
    text = f"Measured by ScaleCard on {'; '.join(facts)}; {days(results)}."
    return text + (EMULATED if any(result.emulated for result in results) else "")


def commits(results: Sequence[Result]) -> list[str]:
    """The code that measured, without repetition; '+changes' if files differed from the commit."""
    found = {(str(r.environment["commit"]), bool(r.environment["dirty"])) for r in results}
    return sorted(commit[:12] + ("+changes" if dirty else "") for commit, dirty in found)


def shortened(image: str) -> str:
    """A container's digest, with as many digits as tell it from others."""
    kind, colon, digest = image.rpartition(":")
    return f"{kind}{colon}{digest[:DIGITS]}"


def days(results: Sequence[Result]) -> str:
    """When it was measured, in UTC: '2026-01-01', or '2026-01-01 to 2026-01-02'."""
    first, last = min(result.started for result in results)[:10], max(result.finished for result in results)[:10]
    return first if first == last else f"{first} to {last}"


def trust(results: Sequence[Result]) -> list[str]:
    """One per reason to trust the numbers, or not to: what was found, then the warnings."""
    warnings = [f"Warning: {text}." for _, text in compare.warnings("", results)]
    return [*reasons_to_trust(results), *(warnings or ["No warnings."])]


def reasons_to_trust(results: Sequence[Result]) -> list[str]:
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
