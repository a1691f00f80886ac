"""Output of `scalecard compare` and `trend`: tables and sentences, JSON, a test case per case, and an HTML page.

Between like hardware it begins with a sentence on what changed, and with the kinds of work; between unlike hardware,
with how many times as fast the one is.
"""

from collections.abc import Sequence
from typing import Any

from scalecard.analysis import formatting, platforms
from scalecard.analysis.compare import VERDICTS, Comparison, Row
from scalecard.cli.output import JUnitCase, Output, aligned
from scalecard.records.statistics import Ratio
from scalecard.report import changes_section, changes_text, pages
from scalecard.report.changes_section import SpeedUp, forest
from scalecard.report.changes_text import Group, grouped
from scalecard.report.table import Table
from scalecard.report.trend import Series, Trend, changed, headline, ratio, since, with_interval, worst_first

GROUPS_HEAD = ("experiment", "cases", "median change", "range", "verdicts")


def output(comparison: Comparison) -> Output:
    """A slower case fails, and one that was not compared was skipped."""
    groups, faster = grouped(comparison.rows), _faster(comparison)
    headline, summary, notes = changes_text.headline(comparison), _summary(comparison), changes_text.notes(comparison)
    if table := _speed_ups(comparison, faster):
        first = aligned(table.head, table.texts)
    else:
        first = aligned(GROUPS_HEAD, [_group_texts(group) for group in groups])
    cases = aligned(changes_section.HEAD, changes_section.cases(comparison.rows, "").texts)
    return Output(
        lines=[headline, "", summary, "", *first, "", *cases, "", *notes],
        fields={
            "a": comparison.old,
            "b": comparison.new,
            "margin": comparison.margin,
            "summary": summary,
            "counts": {verdict: comparison.count(verdict) for verdict in VERDICTS},
            "changes": [changes_text.change(each) for each in comparison.changes],
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
        headline=changes_text.headline(comparison),
        notes=changes_text.notes(comparison),
        forest=None if table else forest(grouped(comparison.rows), comparison.margin),
        speed_ups=table,
        cases=changes_section.cases(comparison.rows, "Cases compared", doubts=True),
    )


def _title(comparison: Comparison) -> str:
    return f"{comparison.new} against {comparison.old}"


def _summary(comparison: Comparison) -> str:
    if platforms.same_hardware(*comparison.sides):
        return changes_text.sentence(comparison)
    old, new = platforms.nicknames(*comparison.sides)
    return f"{new} beside {old}."


def _faster(comparison: Comparison) -> list[SpeedUp]:
    if platforms.same_hardware(*comparison.sides):
        return []
    return changes_section.speed_ups(comparison.rows, *map(changes_section.headlines, comparison.sides))


def _speed_ups(comparison: Comparison, faster: Sequence[SpeedUp]) -> Table | None:
    return changes_section.table_of_speed_ups(faster, platforms.nicknames(*comparison.sides)) if faster else None


def _group_texts(group: Group) -> list[str]:
    middle = formatting.change(group.median) if group.median else ""
    return [group.label, str(len(group.rows)), middle, group.span, changes_text.outcome(group)]


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
        "reason": changes_text.reason(row),
        "doubts": row.doubts,
        **sides,
    }


def ends(ratio: Ratio | None) -> list[float] | None:
    """The ends of its interval, if it has one."""
    return [ratio.interval.low, ratio.interval.high] if ratio and ratio.interval else None


def _test_case(row: Row) -> JUnitCase:
    a, b = formatting.seconds(row.old.median), formatting.seconds(row.new.median)
    said, reason = f"{row.verdict}: {_times_of_a(row)} of A's time, {b} instead of {a}", changes_text.reason(row)
    return JUnitCase(
        group=row.experiment,
        name=changes_section.case(row) or row.metric,
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


def trend_output(trend: Trend, *, nights: int) -> Output:
    """So many `nights` of each number are lines, or all of them if it is 0; the JSON has them all."""
    series = worst_first(trend)
    return Output(
        lines=[headline(trend), *trend.left_out, *(line for each in series for line in _lines(each, nights))],
        fields={
            "platform": trend.platform,
            "margin": trend.margin,
            "left_out": trend.left_out,
            "nights": [
                {"night": n.name, "platform": n.platform, "finished": n.finished, "changes": changed(n)}
                for n in trend.nights
            ],
            "numbers": [_fields(each) for each in series],
        },
    )


def _lines(series: Series, nights: int) -> list[str]:
    time = ratio(series)
    lines = ["", f"{series.verdict}  {series.experiment}: {series.label}" + (f", {time}" if time else "")]
    lines += [f"  {since(series, point)}" for point in series.change_points]
    for night, own in series.points[-nights:]:  # -0 is all
        changes = f"  [{'; '.join(changed(night))}]" if night.changes else ""
        lines.append(f"  {formatting.minute(night.finished)}  {with_interval(own)}{changes}")
    return lines


def _fields(series: Series) -> dict[str, Any]:
    row = series.row
    return {
        "experiment": series.experiment,
        "number": series.label,
        "unit": series.unit,
        "verdict": series.verdict,
        "reason": changes_text.reason(row) if row else "",
        "ratio": row.ratio.value if row and row.ratio else None,
        "interval": ends(row.ratio) if row else None,
        "usual": series.usual,
        "changes": [
            {"night": series.alike[p.at].name, "drift": p.drift, "ratio": p.ratio.value, "interval": ends(p.ratio)}
            for p in series.change_points
        ],
        "outliers": [series.alike[place].name for place in series.outliers],
        "values": [{"night": night.name, "value": own.value, "interval": own.interval} for night, own in series.points],
    }
