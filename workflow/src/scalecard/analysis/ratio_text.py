"""Turns records into words: what the sections share, apart from their looks."""

import math
import statistics
from collections.abc import Sequence

from scalecard.analysis import formatting
from scalecard.records.axes import axis_label
from scalecard.records.record import Case, Record, Result
from scalecard.records.statistics import Interval, Ratio


def case(record: Case) -> str:
    """'algorithm ring, devices 2, 4 KiB': the values on all axes."""
    return ", ".join(f"{axis_label(axis)} {formatting.on_axis(axis, value)}".strip() for axis, value in record.items())


def direction(record: Record) -> str:
    """Where a copy goes: 'host to device', 'within device 0' or 'device 0 to 1'."""
    source, target = record.case["source"], record.case["target"]
    if "host" in (source, target):
        return " to ".join("host" if end == "host" else "device" for end in (source, target))
    return f"within device {source}" if source == target else f"device {source} to {target}"


def final(record: Record) -> float:
    """The last value of a curve over epochs; the median of the processes' last values."""
    return statistics.median(samples[-1] for samples in record.samples)


def accuracy_error(one: float, other: float, images: int) -> float:
    """Half the 95 % interval of the difference of two test accuracies, each of so many images."""
    return 2 * math.sqrt((one * (1 - one) + other * (1 - other)) / images)


def time(record: Record) -> str:
    """'12.3 ms (12.1 to 12.6)': the median and its 95 % interval, or 'n = 4' without one."""
    return f"{formatting.seconds(record.median)} {_spread(record)}"


def _spread(record: Record) -> str:
    if record.interval is None:
        return f"(n = {record.num_samples})"
    return f"({formatting.seconds(record.interval.low)} to {formatting.seconds(record.interval.high)})"


def rate(record: Record, amount: float) -> str:
    """`amount` per sample's time, as a rate: '26.1 (25.9 to 26.2)'."""
    text = formatting.number(amount / record.median)
    if record.interval is None:
        return f"{text} (n = {record.num_samples})"
    return (
        f"{text} ({formatting.number(amount / record.interval.high)} to"
        f" {formatting.number(amount / record.interval.low)})"
    )


def speedup(new: Record, old: Record) -> Ratio:
    """How many times as fast `new` is."""
    return inverse(new.over(old))


def inverse(ratio: Ratio) -> Ratio:
    bounds = ratio.interval and Interval(1 / ratio.interval.high, 1 / ratio.interval.low)
    return Ratio(1 / ratio.value, bounds)


def scaled(ratio: Ratio, by: float) -> Ratio:
    """So many times the ratio, and its interval."""
    bounds = ratio.interval and Interval(ratio.interval.low * by, ratio.interval.high * by)
    return Ratio(ratio.value * by, bounds)


def factor(ratio: Ratio) -> str:
    """'1.54x (1.50 to 1.58)', or with 'too few samples for an interval'."""
    if ratio.interval is None:
        return f"{ratio.value:.2f}x (too few samples for an interval)"
    return f"{ratio.value:.2f}x ({ratio.interval.low:.2f} to {ratio.interval.high:.2f})"


def about(ratio: Ratio) -> str:
    """'5.03x ± 0.04': half the width of the interval, which is on the page in full elsewhere."""
    return f"{ratio.value:.2f}x" + (f" ± {ratio.interval.half_width:.2f}" if ratio.interval else "")


def share(ratio: Ratio) -> str:
    """A ratio as a share: '79 % (77 % to 80 %)', or without the interval that too few samples do not have."""
    text = formatting.percent(ratio.value)
    if ratio.interval is None:
        return text
    return f"{text} ({formatting.percent(ratio.interval.low)} to {formatting.percent(ratio.interval.high)})"


def versus(new: str, ratio: Ratio, old: str) -> str:
    """'GPipe takes 12 % (10 % to 14 %) less time than one device', or that the two cannot be told apart."""
    if ratio.verdict in ("faster", "slower") and ratio.interval is not None:
        low, high = sorted(abs(1 - bound) for bound in (ratio.interval.low, ratio.interval.high))
        change = f"{formatting.percent(abs(1 - ratio.value))} ({formatting.percent(low)} to {formatting.percent(high)})"
        return f"{new} takes {change} {'less' if ratio.value < 1 else 'more'} time than {old}"
    if ratio.verdict == "same":
        return f"{new} takes the same time as {old} (within 1 %)"
    return f"{new} and {old} cannot be told apart here ({factor(ratio)} the time)"


def reason(result: Result, metric: str) -> str:
    """Why the first was skipped or failed."""
    return next((r.why for r in result.records if r.metric == metric and r.status != "ok"), "")


def spans(records: Sequence[Record]) -> list[int | None]:
    """The numbers of nodes these were measured over: None (within one), then 2 and more."""
    found = {_number(r.case["nodes"]) for r in records if r.case.get("nodes")}
    return [None] * any(r.case.get("nodes") is None for r in records) + [int(number) for number in sorted(found)]


def over_nodes(nodes: int | None) -> str:
    """' over 2 nodes', or '' within one."""
    return f" over {nodes} nodes" if nodes else ""


def largest(records: Sequence[Record], axis: str) -> list[Record]:
    """The records at the largest value of an axis."""
    top = max((_number(r.case[axis]) for r in records), default=0.0)
    return [r for r in records if _number(r.case[axis]) == top]


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)
