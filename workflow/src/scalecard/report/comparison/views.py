"""A comparison as a table on the terminal, as JSON, and as one HTML page."""

import json
from typing import Any

from scalecard.report import pages, units, words
from scalecard.report.comparison.compare import MARGIN_OF_ONE_PROCESS, VERDICTS, Comparison, Row
from scalecard.report.junit import JUnitCase, as_xml

HEAD = ("verdict", "B / A", "95 % interval", "A", "B", "experiment", "case")


def case_in_words(row: Row) -> str:
    metric = [] if row.metric == "time" else [row.metric.replace("_", " ")]
    return ", ".join([*metric, words.case(row.case)])


def _case_and_reason(row: Row) -> str:
    return f"{case_in_words(row)} ({row.reason})" if row.ratio and row.reason else case_in_words(row)


def cells(row: Row) -> tuple[str, ...]:
    """One row of every view, in the order of HEAD."""
    interval = row.ratio and row.ratio.interval
    return (
        row.verdict,
        f"{row.ratio.value:.3f}" if row.ratio else "",
        f"{interval.low:.3f} to {interval.high:.3f}" if interval else row.reason or "too few samples",
        units.seconds(row.old.median),
        units.seconds(row.new.median),
        row.experiment,
        _case_and_reason(row),
    )


def headline(comparison: Comparison) -> str:
    counts = ", ".join(f"{comparison.count(v)} {v}" for v in VERDICTS if comparison.count(v))
    return f"B = {comparison.new} against A = {comparison.old}, margin {100 * comparison.margin:g} %: {counts}"


def notes(comparison: Comparison) -> list[str]:
    """What a reader must know to interpret the table."""
    said = [f"What differs: {'; '.join(comparison.changes) or 'nothing that was recorded'}."]
    if not comparison.spread_known:
        said.append(
            "Not every case was measured in several fresh processes on both sides. For the others, the spread between"
            f" processes is unknown, and only a difference beyond {units.percent(MARGIN_OF_ONE_PROCESS)} counts. Set"
            " measure.processes to 3 or more to detect smaller ones."
        )
    lost = sum(row.alone != row.verdict for row in comparison.rows)
    if lost:
        said.append(
            f"{lost} cases are beyond the margin alone, but not among {comparison.num_tested} cases: of so many, some"
            " have such an interval by chance. Measure in more processes to learn whether they changed."
        )
    said += [f"{side} was measured with a warning: {warning}." for side, warning in comparison.warnings]
    for side, number in comparison.only.items():
        if number:
            said.append(f"{number} cases are only in {side}.")
    doubtful = sum(bool(row.doubts) for row in comparison.rows)
    if doubtful:
        said.append(f"In {doubtful} cases samples drift or resemble their neighbours: their intervals are too narrow.")
    return said


def as_text(comparison: Comparison) -> str:
    rows = [HEAD, *(cells(row) for row in comparison.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD) - 1)]
    lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]) for row in rows]
    return "\n".join([headline(comparison), "", *(line.rstrip() for line in lines), "", *notes(comparison)])


def as_json(comparison: Comparison) -> str:
    return json.dumps(
        {
            "a": comparison.old,
            "b": comparison.new,
            "margin": comparison.margin,
            "counts": {verdict: comparison.count(verdict) for verdict in VERDICTS},
            "changes": comparison.changes,
            "notes": notes(comparison),
            "rows": [_json_row(row) for row in comparison.rows],
        },
        indent=1,
    )


def _json_row(row: Row) -> dict[str, Any]:
    interval = row.ratio and row.ratio.interval
    return {
        "experiment": row.experiment,
        "metric": row.metric,
        "case": row.case,
        "verdict": row.verdict,
        "alone": row.alone,
        "ratio": row.ratio and row.ratio.value,
        "interval": [interval.low, interval.high] if interval else None,
        "reason": row.reason,
        "doubts": row.doubts,
        "a": {"median_seconds": row.old.median, "samples": row.old.num_samples, "processes": len(row.old.samples)},
        "b": {"median_seconds": row.new.median, "samples": row.new.num_samples, "processes": len(row.new.samples)},
    }


def as_html(comparison: Comparison) -> str:
    return pages.render(
        "compare.html.j2",
        title=f"{comparison.new} against {comparison.old}",
        headline=headline(comparison),
        notes=notes(comparison),
        head=HEAD,
        rows=[(cells(row), row.doubts) for row in comparison.rows],
    )


def as_junit(comparison: Comparison) -> str:
    """One test case for each case that both sides have: slower ones failed, and those not compared were skipped."""
    suite = f"{comparison.new} against {comparison.old}"
    return as_xml(suite, [_test_case(row) for row in comparison.rows], timestamp=comparison.measured)


def _test_case(row: Row) -> JUnitCase:
    _, ratio, interval, old, new, *_ = cells(row)
    said = f"{row.verdict}: {ratio} ({interval}) of A's time, {new} instead of {old}"
    return JUnitCase(
        group=row.experiment,
        name=case_in_words(row) or row.metric,
        failure=said if row.verdict == "slower" else "",
        skipped=row.reason or row.verdict if row.verdict == "not compared" else "",
        details=[said if row.ratio else row.reason, *row.doubts],
    )
