"""How each number went from night to night, since when it is as it is, and whether the last night is slower.

The verdict is that of `compare`, with its intervals, its margin and its control over all numbers together: A are the
nights before, B is the last one. Each night before counts as one process, since nights differ more than the processes
of one night do. When a number changed is looked for over all nights with the same workload.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from scalecard.analysis import MARGIN_OF_RUNS, by_key, formatting
from scalecard.analysis.change_points import ChangePoint, change_points, outliers
from scalecard.analysis.compare import VERDICTS, Change, Comparison, Row, changes, compare, different_workload
from scalecard.progress import counted
from scalecard.records.files import InvalidResult
from scalecard.records.record import Record, Result
from scalecard.report import changes_text, kept_nights
from scalecard.report.kept_nights import Entry
from scalecard.report.night_folders import HISTORY, indices
from scalecard.report.sections import Number
from scalecard.report.table import Table

BEFORE = 14  # nights that the last one is compared with: older ones say little of what is usual now
HOW_TO_READ = (
    "Each panel is one number: its value on each night, with its 95 % interval. A dashed line is a night with another"
    " driver, a dotted line one with another torch, container, commit or the like. A triangle is the first night of a"
    " change that stayed, a cross is slower than before."
)


@dataclass(frozen=True, kw_only=True)
class Night:
    """One kept night, and what differs from the night before it."""

    name: str
    platform: str
    finished: str
    changes: list[Change]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One number over nights, the oldest first. `row` compares the last night with `usual`, if it has this number.

    `change_points` and `outliers` have places among `alike`, the nights with the last one's workload.
    """

    experiment: str
    label: str
    unit: str
    points: list[tuple[Night, Number]]
    row: Row | None
    usual: float | None
    alike: list[Night]
    change_points: list[ChangePoint]
    outliers: list[int]

    @property
    def verdict(self) -> str:
        """That of `compare`, or why there is none."""
        return self.row.verdict if self.row else "first night" if len(self.points) < 2 else "not in the last night"


@dataclass(frozen=True, kw_only=True)
class Trend:
    """Every number of the kept nights; `left_out` says what could not be read."""

    platform: str
    margin: float
    nights: list[Night]
    series: list[Series]
    left_out: list[str]

    @property
    def slower(self) -> list[Series]:
        return [each for each in self.series if each.verdict == "slower"]

    @property
    def changed(self) -> list[Series]:
        """Those that changed and stayed so, first what became slower by most with its last change."""
        found = [each for each in self.series if each.change_points]
        return sorted(found, key=lambda each: -each.change_points[-1].ratio.value)


def of_platform(platform: Path, *, only: Sequence[str] = (), margin: float = MARGIN_OF_RUNS) -> Trend:
    """Over the nights of this platform's folder and of the same hardware before an upgrade. ValueError without any."""
    entries, left_out = kept_nights.refreshed(platform)
    for path in indices(platform):
        if path.parent.parent != platform:
            more, unread = kept_nights.refreshed(path.parent.parent)
            entries, left_out = entries + more, left_out + unread
    if not (entries or left_out):
        raise ValueError(f"'{platform}': no night was kept in {HISTORY}/ (scalecard keep {platform.name})")
    known = sorted({entry.experiment for entry in entries})
    if unknown := [name for name in only if name not in known]:
        raise ValueError(f"--only {unknown[0]}: no night has a result of it (they have: {', '.join(known)})")
    chosen = [entry for entry in entries if not only or entry.experiment in only]
    return over(chosen, platform.name, margin=margin, left_out=left_out)


def of_indices(paths: Sequence[Path], platform: str) -> Trend:
    """The same from these indices alone, for the report and its figure, which a damaged one does not stop."""
    entries, left_out = list[Entry](), list[str]()
    for path in paths:
        try:
            entries += kept_nights.load(path)
        except InvalidResult as error:
            left_out.append(f"left out: {error} `scalecard keep {path.parent.parent.name}` makes it anew.")
    return over(entries, platform, left_out=left_out)


def over(
    entries: Iterable[Entry], platform: str, *, margin: float = MARGIN_OF_RUNS, left_out: Sequence[str] = ()
) -> Trend:
    """The trend of these entries."""
    ordered = sorted(entries, key=lambda entry: (entry.night, entry.experiment))
    nights, compared = _nights(ordered), _compared(ordered, margin)
    rows = {(row.experiment, row.old.text("number")): row for row in compared.rows} if compared else {}
    return Trend(
        platform=platform,
        margin=margin,
        nights=list(nights.values()),
        series=_series(ordered, nights, rows, margin),
        left_out=list(left_out),
    )


def _nights(ordered: Sequence[Entry]) -> dict[str, Night]:
    found: dict[str, Night] = {}
    before: Entry | None = None
    for name, group in itertools.groupby(ordered, key=lambda entry: entry.night):
        last = max(group, key=lambda entry: entry.finished)
        found[name] = Night(
            name=name,
            platform=last.platform,
            finished=last.finished,
            changes=changes(_facts(before), _facts(last)) if before else [],
        )
        before = last
    return found


def _facts(entry: Entry) -> dict[str, object]:
    """An environment as compare() knows it. The locked software is named by its versions."""
    return {"gpus": [], **entry.environment}


def _series(
    ordered: Sequence[Entry], nights: dict[str, Night], rows: dict[tuple[str, str], Row], margin: float
) -> list[Series]:
    points = by_key(
        ((entry.experiment, number.label, number.unit), (nights[entry.night], number))
        for entry in ordered
        for number in entry.numbers
    )
    last = {entry.experiment: entry for entry in ordered}
    alike = {(e.experiment, e.night) for e in ordered if not different_workload(e.spec, last[e.experiment].spec)}

    def searched(experiment: str, own: Sequence[tuple[Night, Number]]) -> dict[str, Any]:
        same = [(night, number.record.median) for night, number in own if (experiment, night.name) in alike]
        times = [time for _, time in same]
        found = change_points(times, margin=margin, numbers=len(points))
        return {"alike": [night for night, _ in same], "change_points": found, "outliers": outliers(times)}

    return [
        Series(
            experiment=experiment,
            label=label,
            unit=unit,
            points=own,
            row=rows.get((experiment, label)),
            usual=median(number.value for _, number in own[-BEFORE - 1 : -1]) if len(own) > 1 else None,
            **searched(experiment, own),
        )
        for (experiment, label, unit), own in points.items()
    ]


def _compared(ordered: Sequence[Entry], margin: float) -> Comparison | None:
    """The last night against the nights before; None if it has nothing that they have."""
    tonight = [entry for entry in ordered if entry.night == ordered[-1].night]  # none of none
    pairs = [(entries, entry) for entry in tonight if (entries := _before(ordered, entry))]
    old = [_result(entries[-1], _pooled(entries)) for entries, _ in pairs]
    new = [_result(entry, [number.record for number in entry.numbers]) for _, entry in pairs]
    before, last = (
        {(each.experiment, record.metric, record.text("number")) for each in side for record in each.records}
        for side in (old, new)
    )
    return compare(old, new, margin=margin, names=("the nights before", "the last night")) if before & last else None


def _before(ordered: Sequence[Entry], last: Entry) -> list[Entry]:
    """The earlier nights with the same workload; if there are none, the latest one, so that the reason is told."""
    earlier = [entry for entry in ordered if entry.experiment == last.experiment and entry.night < last.night]
    same = [entry for entry in earlier if not different_workload(entry.spec, last.spec)]
    return (same or earlier[-1:])[-BEFORE:]


def _pooled(entries: Sequence[Entry]) -> list[Record]:
    """Each number's samples over nights. One night alone keeps its processes, as when two results are compared."""
    found = by_key((number.label, number.record) for entry in entries for number in entry.numbers)
    return [own[0] if len(own) == 1 else replace(own[-1], samples=[*map(_alternating, own)]) for own in found.values()]


def _alternating(night: Record) -> list[float]:
    """A night as one process, whose processes' samples alternate, so that no half of them stands for one process."""
    return [sample for turn in itertools.zip_longest(*night.samples) for sample in turn if sample is not None]


def _result(entry: Entry, records: list[Record]) -> Result:
    """What compare() needs of a result."""
    return Result(
        experiment=entry.experiment,
        platform=entry.platform,
        spec=entry.spec,
        environment=_facts(entry),
        started=entry.finished,
        finished=entry.finished,
        warnings=[],
        records=records,
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


def since(series: Series, point: ChangePoint) -> str:
    """'-6.5 % (-7.0 % to -6.1 %) since 2026-09-01 02:10, 30 nights ago: driver 570 -> 580', of a rate or of a time."""
    ratio, power = point.ratio, 1 if series.unit == "s" else -1  # the ratio is that of times
    assert ratio.interval is not None, "it was fitted"
    value, *ends = (100 * (each**power - 1) for each in (ratio.value, ratio.interval.low, ratio.interval.high))
    night, ago = series.alike[point.at], len(series.alike) - 1 - point.at
    how = "little by little since" if point.drift else "since"
    why = f": {'; '.join(changed(night))}" if night.changes and not point.drift else ""
    at = f"{formatting.minute(night.finished)}, {ago} nights ago{why}"
    return f"{value:+.1f} % ({min(ends):+.1f} % to {max(ends):+.1f} %) {how} {at}"


def worst_first(trend: Trend) -> list[Series]:
    """The series, those that became slower first."""
    return sorted(trend.series, key=lambda each: [*VERDICTS, each.verdict].index(each.verdict))


def _name(series: Series) -> str:
    return f"{formatting.spaced(series.experiment)}: {series.label}"


def changed(night: Night) -> list[str]:
    """The differences from the night before, in words."""
    return [changes_text.change(each) for each in night.changes]


def page(trend: Trend) -> dict[str, Any]:
    """The values of trend.html.j2, besides the figure."""
    rows = [
        {
            "Verdict": each.verdict,
            "Number": _name(each),
            "Last night": with_interval(each.points[-1][1]),
            "Usually": number(each.usual, each.unit) if each.usual else "",
            "Time against before": ratio(each),
            "Changed": "; ".join(since(each, point) for point in each.change_points),
            "Outliers": ", ".join(formatting.minute(each.alike[place].finished) for place in each.outliers),
        }
        for each in worst_first(trend)
    ]
    return {
        "headline": headline(trend),
        "how_to_read": HOW_TO_READ,
        "slower": [f"{each.experiment}: {each.label}, {ratio(each)}" for each in trend.slower],
        "since": [f"{_name(each)}: {since(each, each.change_points[-1])}" for each in trend.changed],
        "worse": sum(each.change_points[-1].ratio.value > 1 for each in trend.changed),
        "table": Table.of("The last night against the nights before", rows),
        "changes": [
            (formatting.minute(night.finished), "; ".join(changed(night)))
            for night in reversed(trend.nights)
            if night.changes
        ],
        "left_out": trend.left_out,
    }
