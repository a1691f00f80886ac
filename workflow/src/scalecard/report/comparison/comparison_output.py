"""A comparison as tables on the terminal, as JSON, as JUnit's XML, and as one HTML page.

Between like hardware each begins with a sentence on what changed, and with the kinds of work; between unlike hardware,
with how many times as fast the one is.
"""

import json
from collections.abc import Sequence
from typing import Any

from scalecard.analysis import formatting, platforms, ratio_text
from scalecard.analysis.comparison.compare import MARGIN_OF_ONE_PROCESS, VERDICTS, Comparison, Row
from scalecard.report import pages, toc
from scalecard.report.comparison import sentences, speedups
from scalecard.report.comparison.forest import forest
from scalecard.report.comparison.speedups import SpeedUp
from scalecard.report.comparison.summaries import Group, grouped
from scalecard.report.junit import JUnitCase, as_xml
from scalecard.report.strategy_table import Table

HEAD = ("verdict", "change of time", "95 % interval", "A", "B", "experiment", "case")
GROUPS_HEAD = ("experiment", "cases", "median change", "range", "verdicts")


def case_in_words(row: Row) -> str:
    metric = [] if row.metric == "time" else [formatting.spaced(row.metric)]
    return ", ".join([*metric, ratio_text.case(row.case)])


def _case_and_reason(row: Row) -> str:
    return f"{case_in_words(row)} ({sentences.reason(row)})" if row.ratio and row.among else case_in_words(row)


def cells(row: Row) -> tuple[str, ...]:
    """One row of every view, in the order of HEAD."""
    interval = row.ratio and row.ratio.interval
    return (
        row.verdict,
        formatting.change(row.ratio.value) if row.ratio else "",
        formatting.changes(interval.low, interval.high) if interval else sentences.reason(row) or "too few samples",
        formatting.seconds(row.old.median),
        formatting.seconds(row.new.median),
        toc.label(row.experiment),
        _case_and_reason(row),
    )


def case_table(rows: Sequence[Row], label: str, note: str = "") -> Table:
    """The same rows for a page whose tables can be sorted."""
    by = [(0.0, row.ratio.value if row.ratio else 0.0, 0.0, row.old.median, row.new.median, 0.0, 0.0) for row in rows]
    cells_of = [list(zip(cells(row), numbers, strict=True)) for row, numbers in zip(rows, by, strict=True)]
    return Table(label, [name[0].upper() + name[1:] for name in HEAD], cells_of, note)


def headline(comparison: Comparison) -> str:
    counts = ", ".join(f"{comparison.count(v)} {v}" for v in VERDICTS if comparison.count(v))
    return f"B = {comparison.new} against A = {comparison.old}, margin {100 * comparison.margin:g} %: {counts}"


def notes(comparison: Comparison) -> list[str]:
    """What a reader must know to interpret the table."""
    said = [f"What differs: {'; '.join(map(sentences.change, comparison.changes)) or 'nothing that was recorded'}."]
    if not comparison.spread_known:
        said.append(
            "Not every case was measured in several fresh processes on both sides. For the others, the spread between"
            f" processes is unknown, and only a difference beyond {formatting.percent(MARGIN_OF_ONE_PROCESS)} counts."
            " Set measure.processes to 3 or more to detect smaller ones."
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


def summary(comparison: Comparison) -> str:
    """Between like hardware, the sentence on what changed; otherwise which hardware is compared."""
    if platforms.same_hardware(*comparison.sides):
        return sentences.sentence(comparison)
    old, new = platforms.nicknames(*comparison.sides)
    return f"{new} beside {old}."


def faster(comparison: Comparison) -> list[SpeedUp]:
    """Of unlike hardware, how many times as fast B is; nothing of like hardware."""
    if platforms.same_hardware(*comparison.sides):
        return []
    return speedups.speed_ups(comparison.rows, *map(speedups.headlines, comparison.sides))


def as_text(comparison: Comparison) -> str:
    found = faster(comparison)
    if found:
        table = speedups.table(found, platforms.nicknames(*comparison.sides))
        first = [table.head, *([text for text, _ in row] for row in table.rows)]
    else:
        first = [GROUPS_HEAD, *map(_group_cells, grouped(comparison.rows))]
    cases = _aligned([HEAD, *map(cells, comparison.rows)])
    lines = [headline(comparison), "", summary(comparison), "", *_aligned(first), "", *cases, "", *notes(comparison)]
    return "\n".join(lines)


def _group_cells(group: Group) -> tuple[str, ...]:
    middle = formatting.change(group.median) if group.median else ""
    return group.label, str(len(group.rows)), middle, group.span, sentences.outcome(group)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns under their head; the last one may be of any width."""
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    lines = ("  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]) for row in rows)
    return [line.rstrip() for line in lines]


def as_json(comparison: Comparison) -> str:
    return json.dumps(
        {
            "a": comparison.old,
            "b": comparison.new,
            "margin": comparison.margin,
            "summary": summary(comparison),
            "counts": {verdict: comparison.count(verdict) for verdict in VERDICTS},
            "changes": [sentences.change(each) for each in comparison.changes],
            "notes": notes(comparison),
            "groups": [_json_group(group) for group in grouped(comparison.rows)],
            "speed_ups": [_json_speed_up(each) for each in faster(comparison)],
            "rows": [_json_row(row) for row in comparison.rows],
        },
        indent=1,
    )


def _json_group(group: Group) -> dict[str, Any]:
    ratios = group.ratios
    return {
        "group": group.label,
        "counts": {verdict: group.count(verdict) for verdict in VERDICTS},
        "median_ratio": group.median,
        "range": [ratios[0], ratios[-1]] if ratios else None,
    }


def _json_speed_up(each: SpeedUp) -> dict[str, Any]:
    return {
        "experiment": each.experiment,
        "cases": len(each.ratios),
        "speed_up": each.mean,
        "range": [each.ratios[0], each.ratios[-1]] if each.ratios else None,
        "reason": each.reason,
        "a": each.old,
        "b": each.new,
    }


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
        "reason": sentences.reason(row),
        "doubts": row.doubts,
        "a": {"median_seconds": row.old.median, "samples": row.old.num_samples, "processes": len(row.old.samples)},
        "b": {"median_seconds": row.new.median, "samples": row.new.num_samples, "processes": len(row.new.samples)},
    }


def as_html(comparison: Comparison) -> str:
    found = faster(comparison)
    return pages.render(
        "compare.html.j2",
        title=f"{comparison.new} against {comparison.old}",
        summary=summary(comparison),
        headline=headline(comparison),
        notes=notes(comparison),
        forest=None if found else forest(grouped(comparison.rows), comparison.margin),
        speed_ups=speedups.table(found, platforms.nicknames(*comparison.sides)) if found else None,
        head=HEAD,
        rows=[(cells(row), row.doubts) for row in comparison.rows],
    )


def as_junit(comparison: Comparison) -> str:
    """One test case for each case that both sides have: slower ones failed, and those not compared were skipped."""
    suite = f"{comparison.new} against {comparison.old}"
    return as_xml(suite, [_test_case(row) for row in comparison.rows], timestamp=comparison.measured)


def _test_case(row: Row) -> JUnitCase:
    said = f"{row.verdict}: {_times_of_a(row)} of A's time, {cells(row)[4]} instead of {cells(row)[3]}"
    return JUnitCase(
        group=row.experiment,
        name=case_in_words(row) or row.metric,
        failure=said if row.verdict == "slower" else "",
        skipped=sentences.reason(row) or row.verdict if row.verdict == "not compared" else "",
        details=[said if row.ratio else sentences.reason(row), *row.doubts],
    )


def _times_of_a(row: Row) -> str:
    """'1.098 (1.096 to 1.100)': programs read it, and the page says +9.8 %."""
    if not row.ratio:
        return ""
    own = row.ratio.interval
    return f"{row.ratio.value:.3f} ({f'{own.low:.3f} to {own.high:.3f}' if own else 'too few samples'})"
