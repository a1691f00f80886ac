"""The plan of one workflow run: what is measured again, how its budget is shared, what is printed before and after it.

Every measurement has a small file among its inputs, which is empty at first. Where cases failed because a rank was lost
or memory ran out, or had no time in a smaller budget, it names that result, so that Snakemake sees a changed input,
once.

The plan is a file in Snakemake's own folder. A job finds its place in it ('2 of 9') by the logs of the others, and what
they left of their shares of the budget. The closing summary reads when the run started and whether it writes a report;
it has the run's findings, or the ends of the logs of what failed.
"""

import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from scalecard.jobs.needs import HEALTH
from scalecard.progress import counted
from scalecard.records.atomic import write_atomically
from scalecard.records.files import InvalidResult, is_due, load
from scalecard.records.record import Record, Result

MARKS = Path(".snakemake/scalecard-again")
PLAN = Path(".snakemake/scalecard-plan.json")
# What is measured first, in this order, and what `snakemake first_look` shows.
FIRST_LOOK = ("health", "ddp", "dp_scratch", "dp_concise")
NUM_FINDINGS = 3
TAIL = 12  # lines of a failed job's log
SLACK = 5  # minutes of a cluster's job beyond that: to start, and for what is being compared when time is over


def mark_of(result: Path) -> Path:
    """The file among a measurement's inputs."""
    return MARKS / result.parent.name / result.stem


def to_repeat(results: Iterable[Path], seconds: Mapping[str, int]) -> dict[str, str]:
    """The experiments among these results that are measured again, and why; writes the marks.

    `seconds` is how long each may take; without an entry, as long as it needs.
    """
    due = {}
    for path in results:
        mark = mark_of(path)
        if why := is_due(path, seconds.get(path.stem, 0)):
            due[path.stem] = why
            which = str(json.loads(path.read_text()).get("started"))
            if not mark.exists() or mark.read_text() != which:
                write_atomically(mark, which)
        elif not mark.exists():
            write_atomically(mark, "")
            os.utime(mark, (0, 0))  # older than any result: where Snakemake's records are gone, nothing is out of date
    return due


def announce_repeats(due: Mapping[str, str]) -> None:
    """Say why experiments that are up to date are measured again."""
    for name, why in due.items():
        print(f"{name}: {why}", flush=True)


def priority(experiment: str) -> int:
    """Snakemake's priority of its job: above that of figures, which are drawn side by side once all is measured."""
    return 1 + (len(FIRST_LOOK) - FIRST_LOOK.index(experiment) if experiment in FIRST_LOOK else 0)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`started` is in seconds since the epoch; `logs` has the path of a log of each rule that runs, or ''.

    `expected` has the seconds of the rules that measure, in their order. `shares` of the budget, in seconds, are handed
    on: what one leaves, those that follow may take; empty if none are. `headlines`: seconds that nobody gives up.
    """

    started: float
    logs: dict[str, str]
    expected: dict[str, float]
    shares: dict[str, int]
    headlines: dict[str, float]

    def begun(self, *, but: str) -> list[str]:
        """The experiments of this run that have begun to measure, one left out."""
        logs = {name: Path(self.logs[name]) for name in self.logs if name in self.expected and name != but}
        return [name for name, log in logs.items() if log.is_file() and log.stat().st_mtime >= self.started]


def announce(
    logs: Mapping[str, str],
    experiments: Sequence[str],
    *,
    scale: str,
    folder: Path,
    needs: Mapping[str, float],
    shares: Mapping[str, int],
    headlines: Mapping[str, float],
    handed_on: bool = True,
    devices: str,
) -> None:
    """Print what will be measured, on what, and how long it may take; save the plan. `logs` are by the rules that run.

    The expectation is how long it took last time on this platform or what it is estimated to need; `shares` of a
    budget, in seconds, are the most it may be. A cluster's jobs, which have limits of their own, hand nothing on.
    """
    planned = [name for name in experiments if name in logs]
    before = {name: last_seconds(folder / f"{name}.json") for name in planned}
    likely = {name: before[name] or needs[name] for name in planned}
    expected = {name: min(seconds, shares.get(name, seconds)) for name, seconds in likely.items()}
    kept = {name: shares[name] for name in planned if name in shares and handed_on}
    least = {name: headlines[name] for name in kept}
    plan = Plan(started=time.time(), logs=dict(logs), expected=expected, shares=kept, headlines=least)
    write_atomically(PLAN, json.dumps(asdict(plan)))
    if not planned:
        return
    print(f"\n{counted(len(planned), 'experiment')} to measure on {folder.name} ({devices}), {scale} scale:")
    for name in planned:
        source = "last time" if before[name] else "estimated"
        told = f"{_minutes(likely[name])} {source}" if likely[name] else "nothing to measure here"
        print(f"  {name:16} {told}{f', at most {_minutes(shares[name])}' if name in shares else ''}")
    print(f"  {'in total':16} about {_minutes(sum(expected.values()))}", flush=True)
    print(flush=True)


def last_seconds(result: Path) -> float | None:
    """How long an experiment took, from its result file; None if it cannot be read."""
    try:
        data = json.loads(result.read_text())
        span = datetime.fromisoformat(data["finished"]) - datetime.fromisoformat(data["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return span.total_seconds()


def read() -> Plan | None:
    """The plan of the present run; None if there is none that can be read."""
    try:
        return Plan(**json.loads(PLAN.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def take() -> Plan | None:
    """The plan of the run that ends, which is removed: what is started by hand later has no place in it."""
    plan = read()
    PLAN.unlink(missing_ok=True)
    return plan


def place(experiment: str) -> str:
    """The experiment's place among those to measure, such as '2 of 9'; empty if it was started by hand."""
    plan = read()
    if not plan or experiment not in plan.expected:
        return ""
    return f"{len(plan.begun(but=experiment)) + 1} of {len(plan.expected)}"


def seconds_allowed(experiment: str, seconds: int, folder: Path) -> int:
    """The seconds of a budget that an experiment may take: its share, and its part of what those before it left.

    If they took more than theirs, it gets less, but half of its share, and what its headline should need.
    """
    plan = read()
    if not plan or experiment not in plan.shares or not seconds:
        return seconds
    begun = plan.begun(but=experiment)
    left = sum(plan.shares[name] - _taken(folder / f"{name}.json", plan) for name in begun)
    part = seconds / sum(share for name, share in plan.shares.items() if name not in begun)
    least = max(seconds / 2, min(seconds, plan.headlines[experiment]))
    return max(1, round(max(least, seconds + left * part)))


def _taken(result: Path, plan: Plan) -> float:
    """The seconds that it took in this run; its share if it wrote no result."""
    fresh = result.exists() and result.stat().st_mtime >= plan.started
    return (last_seconds(result) if fresh else None) or plan.shares[result.stem]


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def shares(
    budget: float | None, needs: Mapping[str, float], headlines: Mapping[str, float], *, limited: bool
) -> dict[str, int]:
    """Each experiment's share of so many minutes, in seconds.

    Health gets its headline whatever the budget. Every other experiment gets its own, and what is left is shared in
    proportion to what they should need beyond that. If the headlines do not fit, each gets the same part of its own; if
    everything fits, the same multiple of its need. Empty without a budget, unless the time is `limited` by a cluster's
    scheduler: then each gets twice what it needs.
    """
    if budget is None and not limited:
        return {}
    health = headlines.get(HEALTH, 0.0)
    others = {name: own for name, own in needs.items() if name != HEALTH}
    least, most = sum(headlines[name] for name in others), sum(others.values())
    left = 2 * most if budget is None else max(0.0, 60 * budget - health)
    if left >= most:
        found = {name: own * left / (most or 1.0) for name, own in others.items()}
    elif left <= least:
        found = {name: headlines[name] * left / (least or 1.0) for name in others}
    else:
        part = (left - least) / (most - least)
        found = {name: headlines[name] + part * (own - headlines[name]) for name, own in others.items()}
    return {name: max(1, round(found.get(name, health))) for name in needs}


def job_minutes(needs: Mapping[str, float], seconds: Mapping[str, int]) -> dict[str, int]:
    """The time limits to ask a cluster's scheduler for."""
    return {name: SLACK + math.ceil(seconds.get(name, own) / 60) for name, own in needs.items()}


def closing_summary(
    results: Sequence[Path], report: Path, failed: Sequence[Path] | None, left_out: Path | None = None
) -> tuple[str, bool]:
    """Of the run whose plan was announced, and whether it fails although all of its jobs are done.

    `failed` has the logs of jobs that failed, and is None if none did; `left_out` what the report leaves out. A run
    fails if a case failed that should not have, or if a part of the report could not be made.
    """
    run = take()
    seconds = time.time() - run.started if run else 0.0
    if failed is not None:
        return failure(failed, seconds), False  # which Snakemake says itself
    written = "report" in run.logs if run else report.exists()
    measured = readable(results)
    missing: list[str] = json.loads(left_out.read_text()) if left_out and written and left_out.exists() else []
    said = [success(measured, report if written else None, seconds, run.expected if run else {})]
    said += [f"Failed: {each}" for each in missing]
    said += filter(None, [lost_cases(measured)])
    faults = any(record.is_fault for result in measured for record in result.records)
    return "\n".join(said), bool(missing) or faults


def success(
    results: Sequence[Result], report: Path | None, seconds: float, expected: Mapping[str, float] | None = None
) -> str:
    """The closing summary of a successful run; `report` is None if none was written.

    `expected` has the seconds that the experiments which were measured were expected to take.
    """
    from scalecard.analysis import provenance  # these need what draws, which a host whose run failed may lack
    from scalecard.analysis.platforms import each_fit
    from scalecard.report.render import leading
    from scalecard.report.section import Section

    counts = {status: sum(r.count(status) for r in results) for status in ("ok", "skipped", "failed")}
    warnings = provenance.warnings(results)
    known, _ = each_fit(results, Section.of, here="")  # the report names the others
    findings = [finding.text for _, finding in leading(known, NUM_FINDINGS)]
    lines = [f"\nDone in {duration(seconds)}."]
    if results:
        lines.append(
            f"Now on {results[0].platform}: {counted(len(results), 'experiment')},"
            f" {counted(counts['ok'], 'case')} measured, {counts['skipped']} skipped, {counts['failed']} failed,"
            f" {counted(len(warnings), 'warning')}."
        )
    took = {result.experiment: result.seconds for result in results}
    compared = [f"{n} {duration(took[n])} ({duration(s)})" for n, s in (expected or {}).items() if n in took]
    lines += [f"  Measuring took (and was expected to take): {', '.join(compared)}."] if compared else []
    fresh = [result for result in results if result.experiment in (expected or {})]
    told = [provenance.time_spent(fresh), provenance.left_out(results)]
    lines += [f"  {text}" for text in filter(None, told)]
    lines += [f"  Warning: {text}" for text in warnings]
    lines += [f"  - {text}" for text in findings]
    lines.append(f"Report: {report}" if report else "This command did not write the report; plain `snakemake` does.")
    return "\n".join(lines)


def readable(paths: Sequence[Path]) -> list[Result]:
    """The results that can be read: a summary is not the place to fail for one that cannot."""
    results = []
    for path in paths:
        try:
            results.append(load(path))
        except InvalidResult as error:
            print(f"  left out: {error}")
    return results


def failure(logs: Sequence[Path], seconds: float) -> str:
    """The closing summary of a failed run, with the end of each failed job's log."""
    lines = ["", f"Failed after {duration(seconds)}. What was measured is kept; the next run continues from there."]
    for log in logs:
        tail = log.read_text(errors="replace").splitlines()[-TAIL:] if log.exists() else []
        lines += [f"  {log.stem} failed. The end of {log}:", *(f"    {line}" for line in tail or ["(empty)"])]
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """'47 s' or '7 min 12 s'."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def lost_cases(results: Sequence[Result]) -> str:
    """The last line of a run, which lists what was lost; empty if nothing was."""
    lost = [
        f"{result.experiment} {_case(record)} ({record.why})"
        for result in results
        for record in result.records
        if record.status == "failed"
    ]
    if not lost:
        return ""
    due = [r.experiment for r in results if r.count("failed") and not r.failed_again]
    after = f" The next run measures {', '.join(due)} once more." if due else ""
    return f"Failed: {counted(len(lost), 'case')}: {'; '.join(lost)}.{after}"


def _case(record: Record) -> str:
    axes = [f"{axis} {value}" for axis, value in record.case.items()]
    return ", ".join([*axes, record.metric]) if axes else "as a whole"
