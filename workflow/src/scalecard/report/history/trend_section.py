"""The report's section on a trend, beside its figure: a sentence, and a table of the last night."""

from typing import Any

from scalecard.analysis import formatting
from scalecard.analysis.compare import VERDICTS
from scalecard.progress import counted
from scalecard.report import changes_text
from scalecard.report.history.trend import BEFORE, Night, Series, Trend
from scalecard.report.sections import Number
from scalecard.report.table import Table

HOW_TO_READ = (
    "Each panel is one number: its value on each night, with its 95 % interval. A dashed line is a night with another"
    " driver, a dotted line one with another torch, container, commit or the like. A cross is slower than before."
)


def headline(trend: Trend) -> str:
    """The number of nights, and the verdicts on the last one."""
    verdicts = [each.verdict for each in trend.series]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys([*VERDICTS, *verdicts]) if v in verdicts)
    ends = [formatting.minute(night.finished) for night in trend.nights]
    span = " to ".join(dict.fromkeys([ends[0], ends[-1]])) + " UTC" if ends else "none readable"
    return (
        f"{trend.platform}: {counted(len(ends), 'night')}, {span}; the last one against up to {BEFORE} before it,"
        f" margin {100 * trend.margin:g} %: {counts or 'no numbers'}"
    )


def number(value: float, unit: str) -> str:
    """Three digits with the unit: '12.3 ms', '612 TFLOP/s'."""
    if unit == "s":
        return formatting.seconds(value)
    return f"{value:.0f} {unit}" if value >= 1000 else f"{value:.4g} {unit}"


def with_interval(own: Number) -> str:
    """'12.3 ms (12.1 ms to 12.6 ms)'."""
    value, interval = number(own.value, own.unit), own.interval
    if interval is None:
        return f"{value} (n = {own.record.num_samples})"
    return f"{value} ({' to '.join(number(limit, own.unit) for limit in interval)})"


def ratio(series: Series) -> str:
    """The time of the last night over the time before, or why it was not compared."""
    row = series.row
    if row is None or row.ratio is None:
        return changes_text.reason(row) if row else ""
    own = row.ratio.interval
    bounds = f" ({own.low:.3f} to {own.high:.3f})" if own else " (too few samples for an interval)"
    return f"{row.ratio.value:.3f} of the time before{bounds}" + (f"; {changes_text.reason(row)}" if row.among else "")


def worst_first(trend: Trend) -> list[Series]:
    """The series, those that became slower first."""
    return sorted(trend.series, key=lambda each: [*VERDICTS, each.verdict].index(each.verdict))


def changed(night: Night) -> list[str]:
    """The differences from the night before, in words."""
    return [changes_text.change(each) for each in night.changes]


def page(trend: Trend) -> dict[str, Any]:
    """The values of trend.html.j2, besides the figure."""
    rows = [
        {
            "Verdict": each.verdict,
            "Number": f"{formatting.spaced(each.experiment)}: {each.label}",
            "Last night": with_interval(each.points[-1][1]),
            "Usually": number(each.usual, each.unit) if each.usual else "",
            "Time against before": ratio(each),
        }
        for each in worst_first(trend)
    ]
    return {
        "headline": headline(trend),
        "how_to_read": HOW_TO_READ,
        "slower": [f"{each.experiment}: {each.label}, {ratio(each)}" for each in trend.slower],
        "table": Table.of("The last night against the nights before", rows),
        "changes": [
            (formatting.minute(night.finished), "; ".join(changed(night)))
            for night in reversed(trend.nights)
            if night.changes
        ],
        "left_out": trend.left_out,
    }
