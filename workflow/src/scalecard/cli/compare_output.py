"""Output of `scalecard compare`: tables and sentences, JSON, a test case per case, and one HTML page.

Between like hardware it begins with a sentence on what changed, and with the kinds of work; between unlike hardware,
with how many times as fast the one is.
"""

from collections.abc import Sequence
from typing import Any

from scalecard.analysis import formatting, platforms
from scalecard.analysis.comparison.compare import VERDICTS, Comparison, Row
from scalecard.cli.output import JUnitCase, Output, aligned
from scalecard.records.statistics import Ratio
from scalecard.report import pages
from scalecard.report.comparison import comparison_tables, sentences, speedups
from scalecard.report.comparison.forest import forest
from scalecard.report.comparison.speedups import SpeedUp
from scalecard.report.comparison.summaries import Group, grouped
from scalecard.report.table import Table

GROUPS_HEAD = ("experiment", "cases", "median change", "range", "verdicts")


def output(comparison: Comparison) -> Output:
    """A slower case fails, and one that was not compared was skipped."""
    groups, faster = grouped(comparison.rows), _faster(comparison)
    headline, summary, notes = sentences.headline(comparison), _summary(comparison), sentences.notes(comparison)
    if table := _speed_ups(comparison, faster):
        first = aligned(table.head, table.texts)
    else:
        first = aligned(GROUPS_HEAD, [_group_texts(group) for group in groups])
    cases = aligned(comparison_tables.HEAD, comparison_tables.cases(comparison.rows, "").texts)
    return Output(
        lines=[headline, "", summary, "", *first, "", *cases, "", *notes],
        fields={
            "a": comparison.old,
            "b": comparison.new,
            "margin": comparison.margin,
            "summary": summary,
            "counts": {verdict: comparison.count(verdict) for verdict in VERDICTS},
            "changes": [sentences.change(each) for each in comparison.changes],
            "notes": notes,
            "groups": [_group_fields(group) for group in groups],
            "speed_ups": [_speed_up_fields(each) for each in faster],
            "rows": [_row_fields(row) for row in comparison.rows],
        },
        suite=_title(comparison),
        cases=[_test_case(row) for row in comparison.rows],
        measured=comparison.measured,
    )


def page(comparison: Comparison) -> str:
    """The comparison as an HTML page."""
    table = _speed_ups(comparison, _faster(comparison))
    return pages.render(
        "compare.html.j2",
        title=_title(comparison),
        summary=_summary(comparison),
        headline=sentences.headline(comparison),
        notes=sentences.notes(comparison),
        forest=None if table else forest(grouped(comparison.rows), comparison.margin),
        speed_ups=table,
        cases=comparison_tables.cases(comparison.rows, "Cases compared", doubts=True),
    )


def _title(comparison: Comparison) -> str:
    return f"{comparison.new} against {comparison.old}"


def _summary(comparison: Comparison) -> str:
    if platforms.same_hardware(*comparison.sides):
        return sentences.sentence(comparison)
    old, new = platforms.nicknames(*comparison.sides)
    return f"{new} beside {old}."


def _faster(comparison: Comparison) -> list[SpeedUp]:
    """B's speed-ups over A on unlike hardware; none on like hardware."""
    if platforms.same_hardware(*comparison.sides):
        return []
    return speedups.speed_ups(comparison.rows, *map(speedups.headlines, comparison.sides))


def _speed_ups(comparison: Comparison, faster: Sequence[SpeedUp]) -> Table | None:
    return speedups.table(faster, platforms.nicknames(*comparison.sides)) if faster else None


def _group_texts(group: Group) -> list[str]:
    middle = formatting.change(group.median) if group.median else ""
    return [group.label, str(len(group.rows)), middle, group.span, sentences.outcome(group)]


def _group_fields(group: Group) -> dict[str, Any]:
    return {
        "group": group.label,
        "counts": {verdict: group.count(verdict) for verdict in VERDICTS},
        "median_ratio": group.median,
        "range": [group.ratios[0], group.ratios[-1]] if group.ratios else None,
    }


def _speed_up_fields(each: SpeedUp) -> dict[str, Any]:
    return {
        "experiment": each.experiment,
        "cases": len(each.ratios),
        "speed_up": each.mean,
        "range": [each.ratios[0], each.ratios[-1]] if each.ratios else None,
        "reason": each.reason,
        "a": each.old,
        "b": each.new,
    }


def _row_fields(row: Row) -> dict[str, Any]:
    sides = {
        name: {"median_seconds": record.median, "samples": record.num_samples, "processes": len(record.samples)}
        for name, record in (("a", row.old), ("b", row.new))
    }
    return {
        "experiment": row.experiment,
        "metric": row.metric,
        "case": row.case,
        "verdict": row.verdict,
        "alone": row.alone,
        "ratio": row.ratio and row.ratio.value,
        "interval": ends(row.ratio),
        "reason": sentences.reason(row),
        "doubts": row.doubts,
        **sides,
    }


def ends(ratio: Ratio | None) -> list[float] | None:
    """The ends of its interval, if it has one."""
    return [ratio.interval.low, ratio.interval.high] if ratio and ratio.interval else None


def _test_case(row: Row) -> JUnitCase:
    a, b = formatting.seconds(row.old.median), formatting.seconds(row.new.median)
    said, reason = f"{row.verdict}: {_times_of_a(row)} of A's time, {b} instead of {a}", sentences.reason(row)
    return JUnitCase(
        group=row.experiment,
        name=comparison_tables.case(row) or row.metric,
        failure=said if row.verdict == "slower" else "",
        skipped=reason or row.verdict if row.verdict == "not compared" else "",
        details=[said if row.ratio else reason, *row.doubts],
    )


def _times_of_a(row: Row) -> str:
    """'1.098 (1.096 to 1.100)': programs read it, and the page says +9.8 %."""
    if not row.ratio:
        return ""
    own = row.ratio.interval
    return f"{row.ratio.value:.3f} ({f'{own.low:.3f} to {own.high:.3f}' if own else 'too few samples'})"
