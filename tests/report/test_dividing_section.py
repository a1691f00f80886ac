"""What is said of layers divided over devices, from results whose truth is known."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from scalecard.records.record import Count, Record, Result
from scalecard.report.sections import tensor_parallel as section
from support.builders import timed

MIB = 2.0**20
SPEC = {"models": ["lenet", "resnet18"]}


def step(seconds: float, partition: str, devices: int, received: float, model: str = "resnet18") -> Record:
    case = {"workload": model, "strategy": partition, "devices": devices, "batch_size": 8}
    record = timed([seconds] * 8, metric="step_time", **case)
    work = [("received bytes", received), ("parameter bytes", 10 * MIB)]
    return replace(record, work=[Count(name=name, counted=value, expected=value) for name, value in work])


@pytest.fixture
def result(make_result: Callable[..., Result]) -> Result:
    """On four devices pairs take half of one device's time, and column 60 % of it."""
    records = [
        step(1.0, "single device", 1, 0),
        step(0.3, "pairs", 2, 1 * MIB),
        step(0.6, "column", 4, 4 * MIB),
        step(0.9, "row", 4, 5 * MIB),
        step(0.5, "pairs", 4, 3 * MIB),
    ]
    return make_result(records, experiment="tensor_parallel", spec=SPEC)


def test_the_fastest_on_most_devices_is_compared_with_one_and_with_the_next(result: Result) -> None:
    first, second, third = (finding.text for finding in section.findings(result))
    assert first == "ResNet-18 divided in pairs over 4 devices takes 50 % (50 % to 50 %) less time than one device."
    assert "ResNet-18 divided in pairs takes 17 % (17 % to 17 %) less time than the same divided by columns" in second
    assert "exchanges 4 MiB by columns, 5 MiB by rows, 3 MiB in pairs" in third
    assert "data parallelism would exchange 60 MiB of gradients" in third, "2 (4 - 1) times 10 MiB"


def test_the_last_model_leads(make_result: Callable[..., Result]) -> None:
    records = [
        step(seconds, partition, devices, 0, model)
        for model, times in (("lenet", (1.0, 2.0)), ("resnet18", (1.0, 0.5)))
        for seconds, partition, devices in ((times[0], "single device", 1), (times[1], "row", 2))
    ]
    found = section.findings(make_result(records, experiment="tensor_parallel", spec=SPEC))
    leads = sorted(found, key=lambda finding: finding.topic)
    assert [finding.headline for finding in leads[:2]] == ["0.50x one device's time", "2.00x one device's time"]


def test_a_single_device_compares_nothing_and_says_why(make_result: Callable[..., Result]) -> None:
    skipped = Record.skipped(
        {"workload": "resnet18", "strategy": "row", "devices": 2}, "needs 2 devices", metric="step_time"
    )
    result = make_result([step(1.0, "single device", 1, 0), skipped], experiment="tensor_parallel", spec=SPEC)
    (finding,) = section.findings(result)
    assert finding.text == "Not compared: needs 2 devices."


def test_one_panel_per_model_with_a_bar_per_partition_and_a_line_for_one_device(result: Result) -> None:
    lenet, resnet18 = section.plot([result]).axes
    assert [axes.get_title(loc="left") for axes in (lenet, resnet18)] == ["LeNet", "ResNet-18"]
    labels = [label.get_text() for label in resnet18.get_yticklabels()]
    assert labels == ["pairs, 2 devices", "column, 4 devices", "row, 4 devices", "pairs, 4 devices"]
    assert [line.get_xdata()[0] for line in resnet18.lines if line.get_linestyle() == ":"] == [1.0]


def test_the_nights_follow_the_partitions_on_most_devices(result: Result) -> None:
    labels = [number.label for number in section.nightly(result)]
    assert labels == [
        f"step of ResNet-18 divided {how} over 4 devices" for how in ("in pairs", "by columns", "by rows")
    ]
