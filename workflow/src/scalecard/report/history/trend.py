"""How each number went from night to night, and whether the last night is slower than the nights before.

The verdict is that of `compare`, with its intervals, its margin and its control over all numbers together: A are the
nights before, B is the last one. Each night before counts as one process, since nights differ more than the processes
of one night do.

The numbers of `health` to follow from night to night: of each part the slowest device, pair or node, alone.

The slowest one is the part that a training step waits for. Its label names no device, so that it stays one number.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from scalecard.analysis import MARGIN, formatting, limits
from scalecard.analysis.compare import Change, Comparison, Row, changes, compare, different_workload
from scalecard.records.files import InvalidResult
from scalecard.records.record import Record, Result
from scalecard.report.history import index
from scalecard.report.history.index import Entry, Followed
from scalecard.report.history.layout import HISTORY, indices
from scalecard.report.sections import Number

BEFORE = 14  # nights that the last one is compared with: older ones say little of what is usual now


@dataclass(frozen=True, kw_only=True)
class Night:
    """One kept night, and what differs from the night before it."""

    name: str
    platform: str
    finished: str
    changes: list[Change]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One number over nights, the oldest first. `row` compares the last night with `usual`, if it has this number."""

    experiment: str
    label: str
    unit: str
    points: list[tuple[Night, Followed]]
    row: Row | None
    usual: float | None

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
        """The numbers of the last night that are slower than before."""
        return [each for each in self.series if each.verdict == "slower"]


def of_platform(platform: Path, *, only: Sequence[str] = (), margin: float = MARGIN) -> Trend:
    """Over the nights of this platform's folder and of the same hardware before an upgrade. ValueError without any."""
    entries, left_out = index.refreshed(platform)
    for path in indices(platform):
        if path.parent.parent != platform:
            more, unread = index.refreshed(path.parent.parent)
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
            entries += index.load(path)
        except InvalidResult as error:
            left_out.append(f"left out: {error} `scalecard keep {path.parent.parent.name}` makes it anew.")
    return over(entries, platform, left_out=left_out)


def over(entries: Iterable[Entry], platform: str, *, margin: float = MARGIN, left_out: Sequence[str] = ()) -> Trend:
    """The trend of these entries."""
    ordered = sorted(entries, key=lambda entry: (entry.night, entry.experiment))
    nights = _nights(ordered)
    compared = _compared(ordered, margin)
    rows = {(row.experiment, row.old.text("number")): row for row in compared.rows} if compared else {}
    return Trend(
        platform=platform,
        margin=margin,
        nights=list(nights.values()),
        series=_series(ordered, nights, rows),
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


def _series(ordered: Sequence[Entry], nights: dict[str, Night], rows: dict[tuple[str, str], Row]) -> list[Series]:
    points: dict[tuple[str, str, str], list[tuple[Night, Followed]]] = {}
    for entry in ordered:
        for number in entry.numbers:
            key = (entry.experiment, number.label, number.unit)
            points.setdefault(key, []).append((nights[entry.night], number))
    return [
        Series(
            experiment=experiment,
            label=label,
            unit=unit,
            points=own,
            row=rows.get((experiment, label)),
            usual=_usual([number.value for _, number in own[-BEFORE - 1 : -1]]),
        )
        for (experiment, label, unit), own in points.items()
    ]


def _usual(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _compared(ordered: Sequence[Entry], margin: float) -> Comparison | None:
    """The last night against the nights before; None if it has nothing that they have."""
    tonight = [entry for entry in ordered if entry.night == ordered[-1].night]  # none of none
    pairs = [(_before(ordered, entry), entry) for entry in tonight]
    old = [_result(entries[-1], _pooled(entries)) for entries, _ in pairs if entries]
    new = [_result(entry, [number.record for number in entry.numbers]) for entries, entry in pairs if entries]
    shared = {_key(r, record) for r in old for record in r.records} & {
        _key(r, record) for r in new for record in r.records
    }
    return compare(old, new, margin=margin, names=("the nights before", "the last night")) if shared else None


def _key(result: Result, record: Record) -> tuple[str, str, str]:
    return result.experiment, record.metric, record.text("number")


def _before(ordered: Sequence[Entry], last: Entry) -> list[Entry]:
    """The earlier nights with the same workload; if there are none, the latest one, so that the reason is told."""
    earlier = [entry for entry in ordered if entry.experiment == last.experiment and entry.night < last.night]
    same = [entry for entry in earlier if not different_workload(entry.spec, last.spec)]
    return (same or earlier[-1:])[-BEFORE:]


def _pooled(entries: Sequence[Entry]) -> list[Record]:
    """Each number's samples over nights. One night alone keeps its processes, as when two results are compared."""
    found: dict[str, list[Record]] = {}
    for entry in entries:
        for number in entry.numbers:
            found.setdefault(number.label, []).append(number.record)
    return [own[0] if len(own) == 1 else _as_one(own) for own in found.values()]


def _as_one(nights: Sequence[Record]) -> Record:
    """Each night as one process. Its processes' samples alternate, so that no half of them stands for one process."""
    samples = [[s for turn in itertools.zip_longest(*night.samples) for s in turn if s is not None] for night in nights]
    return Record(case=nights[-1].case, metric=nights[-1].metric, unit="s", samples=samples)


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


def nightly(result: Result) -> Iterator[Number]:
    """Products and memory of each device, links at their largest size, all-reduce on most devices, the storage."""
    yield from _products(result)
    copies = result.select("time", part="memory", access="copy", at_once=False)
    yield from _slowest(copies, "memory copy, slowest device", passes=2)
    for direction in ("to device", "to host"):
        own = result.select("time", part="host link", direction=direction, memory="pinned", at_once=False)
        yield from _slowest(own, f"host {'to slowest device' if direction == 'to device' else 'from slowest device'}")
    yield from _slowest(result.select("time", part="device link", at_once=False), "slowest pair of devices")
    yield from _all_reduce(result)
    yield from _slowest(result.select("time", part="node pair"), "all-reduce of the slowest pair of nodes", rate=False)
    yield from _slowest(result.select("time", part="storage"), "reading data_dir")


def _products(result: Result) -> Iterator[Number]:
    records = result.select("time", part="compute", at_once=False)
    for dtype in dict.fromkeys(r.text("dtype") for r in records):
        slowest = max((r for r in records if r.case["dtype"] == dtype), key=lambda r: r.median)
        label, amount = f"{dtype} products, slowest device", limits.product_rate(slowest) * slowest.median
        yield Number(label=label, record=slowest, amount=amount, unit="TFLOP/s")


def _slowest(records: Sequence[Record], label: str, *, passes: int = 1, rate: bool = True) -> Iterator[Number]:
    """The slowest of those at the largest size; `passes` is how often each byte crosses the interface."""
    largest = formatting.largest(records, "bytes")
    if largest:
        slowest = max(largest, key=lambda r: r.median)
        size = float(slowest.case["bytes"] or 0)
        named = f"{label}, {formatting.count_bytes(slowest.case['bytes'])}"
        amount, unit = (passes * size / 1e9, "GB/s") if rate else (0.0, "s")
        yield Number(label=named, record=slowest, amount=amount, unit=unit)


def _all_reduce(result: Result) -> Iterator[Number]:
    """Bus bandwidth at the largest size, on most devices, within a node and over nodes."""
    everything = result.select("time", part="collective", collective="all_reduce")
    for nodes in formatting.spans(everything):
        most = formatting.largest([r for r in everything if r.case.get("nodes") == nodes], "devices")
        for record in formatting.largest(most, "bytes"):
            where = f"{record.case['devices']} devices{formatting.over_nodes(nodes)}"
            label = f"all-reduce of {formatting.count_bytes(record.case['bytes'])} on {where}"
            amount = limits.bus_bandwidth(record) * record.median
            yield Number(label=label, record=record, amount=amount, unit="GB/s")
