"""The end of a workflow run on the terminal: its findings, or the ends of the logs of what failed."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from scalecard.jobs import plan
from scalecard.progress import counted
from scalecard.records.files import InvalidResult, load
from scalecard.records.record import Record, Result

NUM_FINDINGS = 3
TAIL = 12  # lines of a failed job's log


def text(
    results: Sequence[Path], report: Path, failed: Sequence[Path] | None, left_out: Path | None = None
) -> tuple[str, bool]:
    """Of the run whose plan was announced, and whether it fails although all of its jobs are done.

    `failed` has the logs of jobs that failed, and is None if none did; `left_out` what the report leaves out. A run
    fails if a case failed that should not have, or if a part of the report could not be made.
    """
    run = plan.take()
    seconds = time.time() - run.started if run else 0.0
    if failed is not None:
        return failure(failed, seconds), False  # which Snakemake says itself
    written = any(job.rule == "report" for job in run.jobs) if run else report.exists()
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
    from scalecard.analysis.load_results import each_fit
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
