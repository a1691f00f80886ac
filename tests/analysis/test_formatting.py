"""Numbers, sizes and settings as a reader wants them."""

import pytest
from scalecard.analysis import formatting


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12.34, "12.3 s"),
        (1.0, "1 s"),
        (0.999, "999 ms"),
        (0.0123, "12.3 ms"),
        (1.5e-6, "1.50 µs"),
        (3.21e-8, "32.1 ns"),
    ],
)
def test_seconds_have_three_digits_and_the_unit_that_fits(value: float, text: str) -> None:
    assert formatting.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((8, "8 B"), (1000, "1000 B"), (1024, "1 KiB"), (4096, "4 KiB"), (1_000_000, "977 KiB"), (2**20, "1 MiB")),
        *((64 * 2**20, "64 MiB"), (10**9, "954 MiB"), (2**30, "1 GiB"), (3 * 2**29, "1.50 GiB")),
    ],
)
def test_bytes_are_counted_in_binary_units(value: int, text: str) -> None:
    """IEC 80000-13: 1 KiB = 1024 B. 10^6 / 1024 = 976.6; 10^9 / 1024^2 = 953.7."""
    assert formatting.count_bytes(value) == text


def test_a_share_is_in_percent() -> None:
    assert formatting.percent(0.684) == "68 %"
    assert formatting.percent(0.00123, 2) == "0.12 %"


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (
            "workloads",
            {"gpt": {"batch_size": 8, "layers": 12}, "own": {"file": "a.py"}},
            "gpt (batch size 8, layers 12), own (file a.py)",
        ),
        ("nccl_paths", {"P2P/CUMEM": 24, "SHM": 2}, "P2P/CUMEM 24, SHM 2"),
        ("bytes", [4096, 1048576], "4 KiB, 1 MiB"),
        ("buckets_mib", [None, 25], "default, 25"),
        ("workers", None, "all"),
        ("trace", False, "no"),
        ("ecc", True, "yes"),
    ],
)
def test_settings_are_told_in_words(key: str, value: object, text: str) -> None:
    assert formatting.setting(key, value, "all") == text
