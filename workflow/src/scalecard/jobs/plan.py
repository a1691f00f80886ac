"""The plan of one workflow run: what is measured again, how its budget is shared, and what is printed before it begins.

Every measurement has a small file among its inputs, which is empty at first. Where cases failed because a rank was lost
or memory ran out, or had no time in a smaller budget, it names that result, so that Snakemake sees a changed input,
once.

The plan is a file in Snakemake's own folder. A job finds its place in it ('2 of 9') by the logs of the others, and what
they left of their shares of the budget. The closing summary (jobs/end_summary.py) reads when the run started and
whether it writes a report.
"""

import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from scalecard import progress
from scalecard.jobs.needs import HEALTH
from scalecard.records.atomic import write_atomically
from scalecard.records.files import is_due

MARKS = Path(".snakemake/scalecard-again")
PLAN = Path(".snakemake/scalecard-plan.json")
# What is measured first, in this order, and what `snakemake first_look` shows.
FIRST_LOOK = ("health", "ddp", "dp_scratch", "dp_concise")
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
class PlannedJob:
    """A job of this run: its rule, and the path of its log (empty if it has none)."""

    rule: str
    log: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`started` is in seconds since the epoch; `experiments` names the rules that measure, `expected` their seconds.

    `shares` of the budget, in seconds, are handed on: what one leaves, those that follow may take. Empty if none are.
    `headlines` are the seconds that nobody gives up.
    """

    started: float
    jobs: list[PlannedJob]
    experiments: list[str]
    expected: dict[str, float]
    shares: dict[str, int]
    headlines: dict[str, float]

    def begun(self, *, but: str) -> list[str]:
        """The experiments of this run that have begun to measure, one left out."""
        logs = {job.rule: Path(job.log) for job in self.jobs if job.log and job.rule in {*self.experiments} - {but}}
        return [name for name, log in logs.items() if log.exists() and log.stat().st_mtime >= self.started]


def announce(
    jobs: Iterable[PlannedJob],
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
    """Print what will be measured, on what, and how long it may take; save the plan.

    The expectation is how long it took last time on this platform or what it is estimated to need; `shares` of a
    budget, in seconds, are the most it may be. A cluster's jobs, which have limits of their own, hand nothing on.
    """
    own = list(jobs)
    planned = [name for name in experiments if name in {job.rule for job in own}]
    before = {name: last_seconds(folder / f"{name}.json") for name in planned}
    likely = {name: before[name] or needs[name] for name in planned}
    expected = {name: min(seconds, shares.get(name, seconds)) for name, seconds in likely.items()}
    kept = {name: shares[name] for name in planned if name in shares and handed_on}
    least = {name: headlines[name] for name in kept}
    plan = Plan(started=time.time(), jobs=own, experiments=planned, expected=expected, shares=kept, headlines=least)
    write_atomically(PLAN, json.dumps(asdict(plan)))
    if not planned:
        return
    print(f"\n{progress.counted(len(planned), 'experiment')} to measure on {folder.name} ({devices}), {scale} scale:")
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
        data = json.loads(PLAN.read_text())
        return Plan(**{**data, "jobs": [PlannedJob(**job) for job in data["jobs"]]})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def take() -> Plan | None:
    """The plan of the run that ends, which is removed: what is started by hand later has no place in it."""
    plan = read()
    PLAN.unlink(missing_ok=True)
    return plan


def place(experiment: str) -> str:
    """The experiment's place among those to measure, such as '2 of 9'; empty if it was started by hand."""
    plan = read()
    if not plan or experiment not in plan.experiments:
        return ""
    return f"{len(plan.begun(but=experiment)) + 1} of {len(plan.experiments)}"


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
