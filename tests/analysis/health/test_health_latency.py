"""Small copies take as long as it takes to start them, and are noisy: what is odd among them must be so for certain."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from scalecard.analysis.health.alerts import alerts, verdicts
from scalecard.records.axes import Case
from scalecard.records.record import Result
from support.health_boxes import MIB, Box, Extent

SMALL = Extent(host=(4096, 256 * MIB), links=(4096, 65536, 256 * MIB))
NOISY = [8e-6, 9e-6, 10e-6, 12e-6, 16e-6, 30e-6]  # seconds; their median is 11 us
LATE = [17e-6, 18e-6, 20e-6, 22e-6, 25e-6, 40e-6]  # all of them half as long again, and none as long as others may be
FAR = [50e-6, 51e-6, 52e-6, 53e-6, 54e-6, 55e-6]


def box(count: int = 4, **facts: int) -> Box:
    return Box(gpu="NVIDIA GeForce RTX 4090", count=count, extent=SMALL, **facts)


def timed_as(result: Result, samples: list[float], *, where: Callable[[Case], bool]) -> Result:
    records = [replace(r, samples=[samples]) if where(r.case) else r for r in result.records]
    return replace(result, records=records)


def small(part: str, size: int = 4096) -> Callable[[Case], bool]:
    return lambda case: case["part"] == part and case.get("bytes") == size and not case["at_once"]


def of_pair(a: int, b: int, size: int = 4096) -> Callable[[Case], bool]:
    return lambda case: small("device link", size)(case) and {case["source"], case["target"]} == {a, b}


def of_device(device: int, size: int = 4096) -> Callable[[Case], bool]:
    return lambda case: small("host link", size)(case) and case["device"] == device


@pytest.mark.parametrize("size", [4096, 65536])
def test_six_noisy_samples_make_no_pair_odd(size: int) -> None:
    noisy = timed_as(box(8).result(), NOISY, where=small("device link", size))
    assert alerts(timed_as(noisy, LATE, where=of_pair(0, 1, size))) == []


@pytest.mark.parametrize("size", [4096, 65536])
def test_a_pair_slower_than_any_sample_of_the_others_is_odd(size: int) -> None:
    noisy = timed_as(box(8).result(), NOISY, where=small("device link", size))
    (alert,) = alerts(timed_as(noisy, FAR, where=of_pair(0, 1, size)))
    assert (alert.what, alert.verdict) == ("GPU 0 and GPU 1: small copies", "odd one out")
    assert "ACS" in alert.advice


def test_small_host_copies_are_latencies_as_well() -> None:
    """By bandwidth's line of a tenth GPU 3 would be odd: it takes a fifth longer in every sample."""
    times = [10e-6 * (1 + 0.001 * n) for n in range(6)]
    alike = timed_as(box().result(), times, where=small("host link"))
    assert alerts(timed_as(alike, [1.2 * time for time in times], where=of_device(3))) == []
    (alert,) = alerts(timed_as(alike, [3 * time for time in times], where=of_device(3)))
    assert alert.what == "GPU 3: small copies"
    assert alert.kind == "latency"


def test_small_host_copies_are_compared_near_the_same_numa_node_only() -> None:
    """Of three GPUs the last is near the second node, and the thread that starts the copies is near the first."""
    result = timed_as(box(3).result(), [10e-6] * 6, where=small("host link"))
    assert alerts(timed_as(result, [20e-6] * 6, where=of_device(2))) == []
    (alert,) = alerts(timed_as(result, [20e-6] * 6, where=of_device(1)))
    assert alert.what == "GPU 1: small copies"


def test_the_only_pair_has_no_latency_to_compare_with() -> None:
    result = timed_as(box(count=2).result(), FAR, where=lambda case: of_pair(0, 1)(case) and case["source"] == 1)
    found = [verdict for verdict in verdicts(result) if verdict.what in ("GPU 0 to 1, 4 KiB, alone",)]
    assert [verdict.verdict for verdict in found] == ["not judged"]
    assert alerts(result) == []
