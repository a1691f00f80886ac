"""A trend as lines on the terminal, as JSON, and as the values of the report's section."""

import json
from collections.abc import Iterator
from typing import Any

from scalecard.analysis import formatting
from scalecard.analysis.comparison.compare import VERDICTS
from scalecard.report.comparison import sentences
from scalecard.report.history.index import Followed
from scalecard.report.history.trend import BEFORE, Night, Series, Trend

SHOWN = 10  # nights of each number on the terminal
HOW_TO_READ = (
    "Each panel is one number: its value on each night, with its 95 % interval. A dashed line is a night with another"
    " driver, a dotted line one with another torch, container, commit or the like. A cross is slower than before."
)


def headline(trend: Trend) -> str:
    """How many nights, and the verdicts on the last one."""
    verdicts = [each.verdict for each in trend.series]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys([*VERDICTS, *verdicts]) if v in verdicts)
    many = f"{len(trend.nights)} night{'' if len(trend.nights) == 1 else 's'}"
    return (
        f"{trend.platform}: {many}, {_span(trend)}; the last one against up to {BEFORE} before it,"
        f" margin {100 * trend.margin:g} %: {counts or 'no numbers'}"
    )


def _span(trend: Trend) -> str:
    ends = [formatting.minute(night.finished) for night in trend.nights]
    return " to ".join(dict.fromkeys([ends[0], ends[-1]])) + " UTC" if ends else "none readable"


def number(value: float, unit: str) -> str:
    """Three digits with the unit: '12.3 ms', '612 TFLOP/s'."""
    if unit == "s":
        return formatting.seconds(value)
    return f"{value:.0f} {unit}" if value >= 1000 else f"{value:.4g} {unit}"


def with_interval(followed: Followed) -> str:
    """'12.3 ms (12.1 ms to 12.6 ms)'."""
    value, interval = number(followed.value, followed.unit), followed.interval
    if interval is None:
        return f"{value} (n = {followed.record.num_samples})"
    return f"{value} ({' to '.join(number(limit, followed.unit) for limit in interval)})"


def ratio(series: Series) -> str:
    """The time of the last night over the time before, or why it was not compared."""
    row = series.row
    if row is None or row.ratio is None:
        return sentences.reason(row) if row else ""
    own = row.ratio.interval
    bounds = f" ({own.low:.3f} to {own.high:.3f})" if own else " (too few samples for an interval)"
    return f"{row.ratio.value:.3f} of the time before{bounds}" + (f"; {sentences.reason(row)}" if row.among else "")


def worst_first(trend: Trend) -> list[Series]:
    """The series, those that became slower first."""
    order = {verdict: place for place, verdict in enumerate(VERDICTS)}
    return sorted(trend.series, key=lambda each: order.get(each.verdict, len(order)))


def as_text(trend: Trend, *, shown: int = SHOWN) -> str:
    """Every number with its last nights, and where driver, torch, container or commit changed; 0 shows all nights."""
    lines = [headline(trend), *trend.left_out]
    for each in worst_first(trend):
        time = ratio(each)
        lines += ["", f"{each.verdict}  {each.experiment}: {each.label}" + (f", {time}" if time else "")]
        points = each.points[-shown:] if shown else each.points
        lines += [
            f"  {formatting.minute(night.finished)}  {with_interval(own)}{_changed(night)}" for night, own in points
        ]
    return "\n".join(lines)


def _changed(night: Night) -> str:
    return f"  [{'; '.join(_phrases(night))}]" if night.changes else ""


def _phrases(night: Night) -> list[str]:
    return [sentences.change(each) for each in night.changes]


def as_json(trend: Trend) -> str:
    """The fields are described in docs/nightly.md."""
    return json.dumps(
        {
            "platform": trend.platform,
            "margin": trend.margin,
            "left_out": trend.left_out,
            "nights": [
                {"night": n.name, "platform": n.platform, "finished": n.finished, "changes": _phrases(n)}
                for n in trend.nights
            ],
            "numbers": [_json_series(each) for each in worst_first(trend)],
        },
        indent=1,
    )


def _json_series(series: Series) -> dict[str, Any]:
    compared = series.row.ratio if series.row else None
    return {
        "experiment": series.experiment,
        "number": series.label,
        "unit": series.unit,
        "verdict": series.verdict,
        "reason": sentences.reason(series.row) if series.row else "",
        "ratio": compared.value if compared else None,
        "interval": [compared.interval.low, compared.interval.high] if compared and compared.interval else None,
        "usual": series.usual,
        "values": [{"night": night.name, "value": own.value, "interval": own.interval} for night, own in series.points],
    }


def page(trend: Trend) -> dict[str, Any]:
    """What the report's section shows beside the figure; nothing for a single night."""
    return {
        "headline": headline(trend),
        "how_to_read": HOW_TO_READ,
        "slower": [f"{each.experiment}: {each.label}, {ratio(each)}" for each in trend.slower],
        "head": ["Verdict", "Number", "Last night", "Usually", "Time against before"],
        "rows": [
            (
                each.verdict,
                f"{formatting.spaced(each.experiment)}: {each.label}",
                with_interval(each.points[-1][1]),
                number(each.usual, each.unit) if each.usual else "",
                ratio(each),
            )
            for each in worst_first(trend)
        ],
        "changes": list(_changes(trend)),
        "left_out": trend.left_out,
    }


def _changes(trend: Trend) -> Iterator[tuple[str, str]]:
    """(night, what changed) pairs, the latest first."""
    for night in reversed(trend.nights):
        if night.changes:
            yield formatting.minute(night.finished), "; ".join(_phrases(night))
