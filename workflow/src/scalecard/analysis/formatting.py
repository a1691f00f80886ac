"""Numbers with their units, as a reader wants them: three digits, and the unit that fits."""

from collections.abc import Mapping

from scalecard.records.axes import IN_BYTES

SECONDS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))


def of(value: float, unit: str) -> str:
    """A value in this unit, as a reader wants it: '12.3 ms' for seconds, '68 %' for a share, '1.54x' for a factor."""
    if unit == "s":
        return seconds(value)
    if unit == "share":
        return percent(value)
    return f"{value:.2f}x" if unit == "x" else f"{number(value)} {unit}".strip()


def on_tick(value: float, unit: str) -> str:
    """A value beside an axis, whose label has the unit if that is always the same: '5 ms', '80 %', '300'."""
    if unit == "s":
        return _on_tick(value) if value > 0 else "0"
    if unit == "share":
        return percent(value)
    return f"{value:g}x" if unit == "x" else number(value)


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


def _on_tick(value: float) -> str:
    """Without the digits that all ticks would have: '20 ms'."""
    unit, scale = of_seconds(value)
    return f"{number(value / scale)} {unit}"


def count_bytes(value: object) -> str:
    """Binary units: '4 KiB'."""
    assert isinstance(value, int | float)
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= scale:
            return f"{_digits(value / scale)} {unit}"
    return f"{value:g} B"


def byte_rate(value: float) -> str:
    """Decimal gigabytes, as links are rated: '50 GB/s'."""
    return f"{number(value / 1e9)} GB/s"


def count_flops(value: float) -> str:
    """Operations with a decimal prefix: '7.98 GFLOP'."""
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{_digits(value / scale)} {prefix}FLOP"
    return f"{value:g} FLOP"


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
