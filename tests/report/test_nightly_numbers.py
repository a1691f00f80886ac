"""The numbers that sections name for the nights: each once, with the rate that its record has."""

from collections.abc import Callable
from typing import Any

import pytest
from scalecard.records.record import Record, Result
from scalecard.report import sections
from scalecard.report.sections import health
from support.builders import timed
from support.every_experiment import every_result


@pytest.mark.parametrize("gpus", [0, 2])
@pytest.mark.parametrize("scale", ["quick", "full"])
def test_every_section_names_numbers_that_are_told_apart(gpus: int, scale: str) -> None:
    for result in every_result("box", gpus=gpus, scale=scale):
        numbers = list(sections.load(result.experiment).nightly(result))
        labels = [number.label for number in numbers]
        assert 1 <= len(labels) <= (9 if result.experiment == "health" else 6), result.experiment
        assert len(set(labels)) == len(labels), result.experiment
        assert all(number.record in result.records for number in numbers)
        assert all((number.amount > 0) == (number.unit != "s") for number in numbers)


@pytest.mark.parametrize("name", sections.names())
def test_what_was_not_measured_has_no_number(make_result: Callable[..., Result], name: str) -> None:
    spec = {"model": "resnet50", "models": ["lenet"], "batch_sizes": [1], "lrs": [0.1], "split_sizes": [1]}
    result = make_result([Record.skipped({"devices": 2}, "needs 2 devices")], experiment=name, spec=spec)
    assert list(sections.load(name).nightly(result)) == []


def of(seconds: float, **case: Any) -> Record:
    return timed([seconds] * 8, **case)


# The part's records, and the number that is followed: its label, and its rate worked out by hand.
OF_HEALTH: list[tuple[list[Record], str, float, str]] = [
    (
        [
            of(s, part="compute", dtype="bf16", size=1000, products=5, device=d, at_once=False)
            for d, s in enumerate((1, 2))
        ]
        + [of(9, part="compute", dtype="bf16", size=1000, products=5, device=0, at_once=True)],
        "bf16 products, slowest device",
        2 * 1000**3 * 5 / 2 / 1e12,
        "TFLOP/s",
    ),
    (
        [of(s, part="memory", access=a, bytes=2**30, device=0, at_once=False) for a, s in (("copy", 0.5), ("read", 2))],
        "memory copy, slowest device, 1 GiB",
        2 * 2**30 / 0.5 / 1e9,
        "GB/s",
    ),
    (
        [
            of(s, part="host link", direction="to host", memory=m, bytes=2**20, device=0, at_once=False)
            for m, s in (("pinned", 1), ("pageable", 3))
        ],
        "host from slowest device, 1 MiB",
        2**20 / 1e9,
        "GB/s",
    ),
    (
        [
            of(s, part="device link", source=0, target=t, bytes=b, at_once=False)
            for t, b, s in ((1, 4, 9), (1, 2**20, 1))
        ]
        + [of(4, part="device link", source=0, target=2, bytes=2**20, at_once=False)],
        "slowest pair of devices, 1 MiB",
        2**20 / 4 / 1e9,
        "GB/s",
    ),
    (
        [of(2, part="collective", collective="all_reduce", devices=n, bytes=2**20) for n in (2, 4)]
        + [of(9, part="collective", collective="broadcast", devices=4, bytes=2**20)],
        "all-reduce of 1 MiB on 4 devices",
        2 * 3 / 4 * 2**20 / 2 / 1e9,
        "GB/s",
    ),
    (
        [of(s, part="node pair", node=0, other=n, devices=16, bytes=2**20) for n, s in ((1, 2), (2, 3))],
        "all-reduce of the slowest pair of nodes, 1 MiB",
        3.0,
        "s",
    ),
    ([of(2, part="storage", bytes=2**20)], "reading data_dir, 1 MiB", 2**20 / 2 / 1e9, "GB/s"),
]


@pytest.mark.parametrize(
    ("records", "label", "value", "unit"), OF_HEALTH, ids=lambda x: x if isinstance(x, str) else ""
)
def test_health_is_followed_by_the_slowest_of_each_part(
    make_result: Callable[..., Result], records: list[Record], label: str, value: float, unit: str
) -> None:
    (number,) = health.nightly(make_result(records, experiment="health"))
    assert (number.label, number.unit) == (label, unit)
    assert number.value == pytest.approx(value)
