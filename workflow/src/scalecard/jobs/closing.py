"""What a run of the workflow prints at its end: its findings, or the ends of the logs of what failed."""

import time
from collections.abc import Sequence
from pathlib import Path

from scalecard.jobs import failed_cases, plan
from scalecard.report import summary


def text(results: Sequence[Path], report: Path, failed: Sequence[Path] | None) -> str:
    """Of the run whose plan was announced; `failed` has the logs of what failed, and is None if nothing did."""
    run = plan.take()
    seconds = time.time() - run.started if run else 0.0
    if failed is not None:
        return summary.failure(failed, seconds)
    written = any(job.rule == "report" for job in run.jobs) if run else report.exists()
    measured = summary.readable(results)
    said = summary.success(measured, report if written else None, seconds, run.expected if run else {})
    lost = failed_cases.closing(measured)
    return f"{said}\n{lost}" if lost else said
