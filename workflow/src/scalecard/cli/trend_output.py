"""Output of `scalecard trend`: every number over its last nights, and what changed in the meantime."""

from typing import Any

from scalecard.analysis import formatting
from scalecard.cli.compare_output import ends
from scalecard.cli.output import Output
from scalecard.report.comparison import sentences
from scalecard.report.history.trend import Series, Trend
from scalecard.report.history.trend_section import changed, headline, ratio, with_interval, worst_first


def output(trend: Trend, *, nights: int) -> Output:
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
        "reason": sentences.reason(row) if row else "",
        "ratio": row.ratio.value if row and row.ratio else None,
        "interval": ends(row.ratio) if row else None,
        "usual": series.usual,
        "values": [{"night": night.name, "value": own.value, "interval": own.interval} for night, own in series.points],
    }
