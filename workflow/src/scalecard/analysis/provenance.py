"""How numbers came about and where, in one sentence each, and how far they can be trusted (drift, autocorrelation).

An interval within a process is too narrow if samples drift or resemble their neighbours.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from statistics import median

import scipy

from scalecard.analysis import by_key, formatting, step_records
from scalecard.hardware.machine import from_facts
from scalecard.progress import counted
from scalecard.records.record import Reason, Record, Result, Slowdown
from scalecard.time_spent import Activity

DIGITS = 12  # of the container's digest; the result has all of them
METHOD = (
    "A step is the median of its samples, with the 95 % interval of that median; speed-up is the rate over that of one"
    " device alone, and efficiency the speed-up per device; with strong scaling all devices share the batch of one,"
    " with weak scaling each has as many samples; every case was proven to train what one device trains before it was"
    " timed."
)
EMULATED = " CPU workers and CPU ranks stood in for devices: the numbers say nothing about GPUs."
NOTABLE_DRIFT = 0.02  # on the log scale
NOTABLE_CORRELATION = 0.4
FEWEST_SAMPLES = 12
SIGNIFICANCE = 0.01
# What the time of measuring is spent on besides timed samples.
OVERHEADS = {
    Activity.WARM_UP: "warm-up",
    Activity.PROOF: "proofs",
    Activity.TRIAL: "trials",
    Activity.COMPILATION: "compilation",
    Activity.LAUNCH: "launches of ranks",
}
LEAST_SHARE = 0.01  # that is told


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


def warnings(results: Sequence[Result]) -> list[str]:
    """The warnings raised while these were measured, each once, with the names of its experiments."""
    experiments = by_key((warning, result.experiment) for result in results for warning in result.warnings)
    return [f"{warning} ({', '.join(names)})" for warning, names in experiments.items()]


def trust(results: Sequence[Result]) -> list[str]:
    """One per reason to trust the numbers, or not to: what was found, then the warnings."""
    return [*reasons_to_trust(results), *([f"Warning: {text}." for text in warnings(results)] or ["No warnings."])]


def reasons_to_trust(results: Sequence[Result]) -> list[str]:
    """The reasons without the warnings."""
    timed = [record for result in results for record in result.records if record.telemetry]
    ok, skipped, failed = (sum(r.count(status) for r in results) for status in ("ok", "skipped", "failed"))
    return [
        f"Cases: {ok} measured, {skipped} skipped, {failed} failed.",
        proofs(results),
        _counts(results),
        throttling(results),
        _processes(timed),
        *_repeated(results),
        *filter(None, [time_spent(results), left_out(results)]),
    ]


def proofs(results: Sequence[Result]) -> str:
    """How many passed: 'All 12 proofs passed before timing.'"""
    passed = [check.passed for result in results for record in result.records for check in record.checks]
    return f"{_all(passed)} proofs passed before timing." if passed else "No case needed a proof."


def _counts(results: Sequence[Result]) -> str:
    """How many are as expected: 'All 30 counts of work are as expected.'"""
    passed = [count.passed for result in results for record in result.records for count in record.work]
    return f"{_all(passed)} counts of work are as expected." if passed else "No work was counted."


def _all(passed: Sequence[bool]) -> str:
    return f"All {len(passed)}" if all(passed) and len(passed) > 1 else f"{sum(passed)} of {len(passed)}"


def left_out(results: Sequence[Result]) -> str:
    """What had no time, and about how many minutes all of each experiment would take; '' if nothing was left out."""
    told = []
    for result in results:
        if late := sum(record.reason is Reason.NO_TIME for record in result.records):
            whole = result.seconds * (1 + late / max(1, result.count("ok")))
            cases = counted(late, "case")
            told.append(f"{cases} of {result.experiment} (all of it takes about {max(1, round(whole / 60))} min)")
    return f"Left out for lack of time: {', '.join(told)}." if told else ""


def time_spent(results: Sequence[Result]) -> str:
    """How much of the time of measuring was timed samples, and what the rest was; '' if that is not known."""
    known = [result for result in results if result.spent]
    if not known:
        return ""
    whole = sum(result.seconds for result in known)
    shares = {activity: sum(result.spent.get(activity, 0.0) for result in known) / whole for activity in Activity}
    told = [(shares[activity], what) for activity, what in OVERHEADS.items() if shares[activity] >= LEAST_SHARE]
    others = "; " * bool(told) + ", ".join(f"{formatting.percent(share)} {what}" for share, what in told)
    return f"Time: {formatting.percent(shares[Activity.TIMED])} of measuring was timed samples{others}."


def throttling(results: Sequence[Result]) -> str:
    """In how many cases, by the driver's reasons; a power cap is a setting of the GPU, and does not count."""
    timed = [record for result in results for record in result.records if record.telemetry]
    states = [[gpu for entry in record.telemetry if entry.state for gpu in entry.state.gpus] for record in timed]
    watched = [gpus for gpus in states if gpus]
    if not watched:
        return "Throttling is not known: no GPU was watched."
    slowed = sum(any({*gpu.reasons} & {*Slowdown} for gpu in gpus) for gpus in watched)
    where = f"in {slowed} of {counted(len(watched), 'timed case')} a GPU was slowed down"
    return f"Throttled: {where}." if slowed else f"No throttling in {counted(len(watched), 'case')}."


def _repeated(results: Sequence[Result]) -> Iterator[str]:
    """What several experiments timed, each in rounds of its own, so that no two values are taken for one quantity."""
    for workload, own in step_records.repeated(results).items():
        times = ", ".join(f"{formatting.seconds(step.median)} in {name}" for name, step in own.items())
        yield f"A step of {workload} on one device took {times}; ratios are of one experiment's."


def _processes(timed: Sequence[Record]) -> str:
    few, most = (number([len(record.samples) for record in timed], default=0) for number in (min, max))
    if most == 1:
        return "One process per case, so the spread between processes is not known."
    return f"{most if few == most else f'{few} to {most}'} processes per case."


def doubts(processes: Sequence[Sequence[float]]) -> list[str]:
    """Remarks on the samples of several processes; empty if nothing stands out."""
    return list(_doubts(tuple(map(tuple, processes))))


@functools.cache  # a report compares the current platform with each other one, and scipy takes milliseconds
def _doubts(processes: tuple[tuple[float, ...], ...]) -> list[str]:
    long, remarks = [samples for samples in processes if len(samples) >= FEWEST_SAMPLES], []
    drifts = sorted(((abs(math.log(drift(samples))), samples) for samples in long), reverse=True)
    # The test takes longest, so only what would be said is tested: the largest drift first.
    notable = [samples for size, samples in drifts if size > NOTABLE_DRIFT]
    worst = next((drift(samples) for samples in notable if _halves_differ(samples, SIGNIFICANCE / len(long))), None)
    if worst is not None:
        change = "slower" if worst > 1 else "faster"
        remarks.append(f"{formatting.percent(abs(worst - 1))} {change} in the second half than in the first")
    related = max((autocorrelation(s) for s in long if autocorrelation(s) > 2 / math.sqrt(len(s))), default=0.0)
    if related > NOTABLE_CORRELATION:
        remarks.append(f"neighbouring samples resemble one another (autocorrelation {related:.2f})")
    return remarks


def drift(samples: Sequence[float]) -> float:
    """The median of the second half over that of the first: 1.05 means 5 % slower at the end."""
    half = len(samples) // 2
    return median(samples[-half:]) / median(samples[:half])


def autocorrelation(samples: Sequence[float]) -> float:
    """The rank correlation of neighbouring samples, from -1 to 1; independent samples are near 0."""
    found = float(scipy.stats.spearmanr(samples[:-1], samples[1:]).statistic) if len(set(samples)) > 1 else 0.0
    return 0.0 if math.isnan(found) else found


def _halves_differ(samples: Sequence[float], level: float) -> bool:
    """Whether the halves differ by more than their scatter explains (Mann-Whitney test)."""
    half = len(samples) // 2
    return bool(scipy.stats.mannwhitneyu(samples[:half], samples[-half:]).pvalue < level)
