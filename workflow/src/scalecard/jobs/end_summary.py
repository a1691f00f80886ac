"""What a run of the workflow prints at its end: its findings, or the ends of the logs of what failed."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from scalecard.jobs import failed_cases, plan
from scalecard.report import summary


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
        return summary.failure(failed, seconds), False  # which Snakemake says itself
    written = any(job.rule == "report" for job in run.jobs) if run else report.exists()
    measured = summary.readable(results)
    missing: list[str] = json.loads(left_out.read_text()) if left_out and written and left_out.exists() else []
    said = [summary.success(measured, report if written else None, seconds, run.expected if run else {})]
    said += [f"Failed: {each}" for each in missing]
    said += filter(None, [failed_cases.closing(measured)])
    faults = any(record.is_fault for result in measured for record in result.records)
    return "\n".join(said), bool(missing) or faults
