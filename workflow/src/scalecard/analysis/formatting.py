"""Numbers with their units, as a reader wants them; ratios and cases in words, as all sections use them."""

from collections.abc import Callable, Mapping, Sequence

from scalecard.progress import counted
from scalecard.records.axes import IN_BYTES, Case, axis_label
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Interval, Ratio

MODELS = {
    "lenet": "LeNet",
    "resnet18": "ResNet-18",
    "resnet18_printed": "the textbook's own ResNet-18",
    "resnet18_quarter": "quarter-width ResNet-18",
    "resnet18_eighth": "eighth-width ResNet-18",
    "resnet50": "ResNet-50",
    "resnet26_quarter": "quarter-width ResNet-26",
}
SECONDS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
BYTES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
FLOPS = (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("kFLOP", 1e3))


def of(value: float, unit: str) -> str:
    """A value in this unit, as a reader wants it: '12.3 ms' for seconds, '4 KiB', '68 %' for a share, '1.54x'."""
    if unit == "s":
        return seconds(value)
    if unit == "share":
        return percent(value)
    if unit == "B":
        return count_bytes(value)
    return f"{value:.2f}x" if unit == "x" else f"{number(value)} {unit}".strip()


def on_tick(value: float, unit: str) -> str:
    """A value beside an axis, whose label has the unit if that is always the same: '5 ms', '80 %', '300'."""
    if unit == "s":  # without the digits that all ticks would have
        fitting, scale = of_seconds(value)
        return f"{number(value / scale)} {fitting}" if value > 0 else "0"
    if unit == "share":
        return percent(value)
    if unit == "B":
        return count_bytes(value) if value > 0 else "0"
    return f"{value:g}x" if unit == "x" else number(value)


def model_name(workload: str) -> str:
    """A built-in model as its authors write it; others as they are called in config.yaml."""
    return MODELS.get(workload, workload)


def number(value: float) -> str:
    """Three digits, thousands apart, and no power of ten from 0.0001 on: '2,870'."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:g}"


def on_axis(axis: str, value: object) -> str:
    """A value of a case's axis or a setting: sizes in binary units, the others as they are."""
    return count_bytes(value) if axis in IN_BYTES and isinstance(value, int | float) else str(value)


def spaced(key: str) -> str:
    """A name of the program as words: 'batch size' for batch_size."""
    return key.replace("_", " ")


def setting(key: str, value: object, none: str = "not known") -> str:
    """A value of config.yaml or of an environment, however nested: 'gpt (batch size 8, layers 12)', '1 MiB, 4 MiB'."""
    if value is None:
        return none
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        own = ((spaced(name), each, setting(name, each, none)) for name, each in value.items())
        return ", ".join(
            f"{name} ({text})" if isinstance(each, Mapping) else f"{name} {text}" for name, each, text in own
        )
    if isinstance(value, list | tuple):
        return ", ".join(setting(key, each, "default") for each in value)
    return on_axis(key, value)


def seconds(value: float) -> str:
    """Three digits and the unit that fits: '12.3 ms'."""
    unit, scale = of_seconds(value)
    return f"{_digits(value / scale)} {unit}"


def of_seconds(value: float) -> tuple[str, float]:
    """The unit that fits, and how many seconds it has."""
    return next((one for one in SECONDS if value >= one[1]), SECONDS[-1])


def count_bytes(value: object) -> str:
    """Binary units: '4 KiB'."""
    assert isinstance(value, int | float)
    return _counted(value, BYTES, "B")


def byte_rate(value: float) -> str:
    """Decimal gigabytes, as links are rated: '50 GB/s'."""
    return f"{number(value / 1e9)} GB/s"


def count_flops(value: float) -> str:
    """Operations with a decimal prefix: '7.98 GFLOP'."""
    return _counted(value, FLOPS, "FLOP")


def _counted(value: float, units: Sequence[tuple[str, float]], one: str) -> str:
    fitting = next(((unit, scale) for unit, scale in units if value >= scale), None)
    return f"{_digits(value / fitting[1])} {fitting[0]}" if fitting else f"{value:g} {one}"


def count(value: float) -> str:
    """Three digits, and thousands apart: '14,700'."""
    return _digits(value) if value < 1000 else f"{float(f'{value:.3g}'):,.0f}"


def percent(share: float, digits: int = 0) -> str:
    """A share of one as '68 %', with a space as SI writes it."""
    return f"{100 * share:.{digits}f} %"


def change(ratio: float) -> str:
    """New over old as a change: '+8.1 %', '-3.0 %', and beyond +200 % as '3.1x'."""
    percents = round(100 * (ratio - 1), 1)
    if percents > 200:
        return f"{number(ratio)}x"
    return f"{percents:+.{0 if percents >= 100 else 1}f} %" if percents else "0 %"


def changes(low: float, high: float) -> str:
    """A range of them: '+7.0 % to +8.1 %'."""
    return f"{change(low)} to {change(high)}"


def minute(moment: str) -> str:
    """An ISO 8601 moment to the minute: '2026-01-01 00:01'."""
    return moment[:16].replace("T", " ")


def _digits(value: float) -> str:
    if value >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def case(record: Case) -> str:
    """'algorithm ring, devices 2, 4 KiB': the values on all axes."""
    return ", ".join(f"{axis_label(axis)} {on_axis(axis, value)}".strip() for axis, value in record.items())


def direction(record: Record) -> str:
    """Where a copy goes: 'host to device', 'within device 0' or 'device 0 to 1'."""
    source, target = record.case["source"], record.case["target"]
    if "host" in (source, target):
        return " to ".join("host" if end == "host" else "device" for end in (source, target))
    return f"within device {source}" if source == target else f"device {source} to {target}"


def by_devices(curves: Sequence[Record], kind: str) -> dict[str, Record]:
    """Those of a sweep by their number of devices, the fewest first: '1 rank' and '8 ranks'."""
    ordered = sorted(curves, key=lambda record: record.integer("devices"))
    return {counted(record.integer("devices"), kind): record for record in ordered}


def time(record: Record) -> str:
    """'12.3 ms (12.1 to 12.6)': the median and its 95 % interval, or 'n = 4' without one."""
    return _with_interval(record, seconds)


def rate(record: Record, amount: float) -> str:
    """`amount` per sample's time, as a rate: '26.1 (25.9 to 26.2)'."""
    return _with_interval(record, lambda seconds: number(amount / seconds), falling=True)


def _with_interval(record: Record, text: Callable[[float], str], *, falling: bool = False) -> str:
    """The median and its interval in words; `falling` if a larger sample is a smaller value."""
    if record.interval is None:
        return f"{text(record.median)} (n = {record.num_samples})"
    low, high = text(record.interval.low), text(record.interval.high)
    return f"{text(record.median)} ({high} to {low})" if falling else f"{text(record.median)} ({low} to {high})"


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
    text = percent(ratio.value)
    if ratio.interval is None:
        return text
    return f"{text} ({percent(ratio.interval.low)} to {percent(ratio.interval.high)})"


def versus(new: str, ratio: Ratio, old: str) -> str:
    """'GPipe takes 12 % (10 % to 14 %) less time than one device', or that no difference is measurable."""
    if ratio.verdict in ("faster", "slower") and ratio.interval is not None:
        low, high = sorted(abs(1 - bound) for bound in (ratio.interval.low, ratio.interval.high))
        change = f"{percent(abs(1 - ratio.value))} ({percent(low)} to {percent(high)})"
        return f"{new} takes {change} {'less' if ratio.value < 1 else 'more'} time than {old}"
    if ratio.verdict == "same":
        return f"{new} takes the same time as {old} (within 1 %)"
    return f"{new} and {old} show no measurable difference ({factor(ratio)} the time)"


def reason(result: Result, metric: str) -> str:
    """Why the first was skipped or failed."""
    return next((r.why for r in result.records if r.metric == metric and r.status != "ok"), "")


def spans(records: Sequence[Record]) -> list[int | None]:
    """The numbers of nodes these were measured over: None (within one), then 2 and more."""
    return [nodes if nodes > 1 else None for nodes in sorted({record.integer("nodes", 1) for record in records})]


def over_nodes(nodes: int | None) -> str:
    """' over 2 nodes', or '' within one."""
    return f" over {nodes} nodes" if nodes else ""


def largest(records: Sequence[Record], axis: str) -> list[Record]:
    """The records at the largest value of an axis."""
    top = max((record.integer(axis) for record in records), default=0)
    return [record for record in records if record.case[axis] == top]
