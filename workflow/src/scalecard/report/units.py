"""Numbers with their units, as a reader wants them: three digits, and the unit that fits."""


def number(value: float) -> str:
    """Three digits, thousands apart, and no power of ten from 0.0001 on: '2,870'."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:g}"


def on_axis(axis: str, value: object) -> str:
    """A value of a case's axis or a setting: sizes in binary units, the others as they are."""
    return count_bytes(value) if axis.endswith("bytes") and isinstance(value, int | float) else str(value)


def seconds(value: float) -> str:
    """Three digits and the unit that fits: '12.3 ms'."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{_digits(value / scale)} {unit}"
    return f"{_digits(value / 1e-9)} ns"


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


def minute(moment: str) -> str:
    """An ISO 8601 moment to the minute: '2026-01-01 00:01'."""
    return moment[:16].replace("T", " ")


def _digits(value: float) -> str:
    if value >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
