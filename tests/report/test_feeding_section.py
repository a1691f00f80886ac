"""What is said of a loader, by made-up results whose truth is known."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from scalecard.analysis.loader_results import loader_results
from scalecard.figures import layout, points
from scalecard.records.record import Record, Result
from scalecard.report.sections import input as section
from support.builders import timed

STEP = 0.1  # seconds on resident data
AXES = {"workload": "resnet50", "devices": 1, "unit": "samples", "batches": 8}


def samples(metric: str, seconds: float, part: str, noise: float = 0.001, **case: Any) -> Record:
    spread = [seconds * (1 + noise * (n % 5 - 2)) for n in range(20)]
    case = {**AXES, "part": part, "batch_size": 64, "units": 64, **case}
    return timed(spread, rounds_id=part, metric=metric, **case)


def loader(seconds: float, part: str = "workers", workers: int = 8, **case: Any) -> Record:
    usual = {"prefetch": 2, "persistent": True} if workers else {}
    return samples("load_time", seconds, part, **{"workers": workers, "memory": "pinned", **usual, **case})


def step(seconds: float, part: str = "settings", **case: Any) -> Record:
    return samples("step_time", seconds, part, **case)


def sweep(*others: Record, batch: float = 1.6, resident: float = STEP) -> list[Record]:
    """A worker takes so many seconds for a batch, and none helps another."""
    loaders = [loader(batch / max(1, count), workers=count) for count in (0, 1, 8, 16, 50)]
    resident_steps = [step(resident, part, data="resident") for part in ("workers", "settings")]
    return [*resident_steps, *loaders, *others]


@pytest.fixture
def told(make_result: Callable[..., Result]) -> Callable[..., list[str]]:
    """The texts; of GPUs, unless `emulated`."""

    def findings(records: list[Record], *, emulated: bool = False) -> list[str]:
        made = make_result(records, experiment="input")
        made = replace(made, environment={**made.environment, "emulated": emulated})
        return [finding.text for finding in section.findings(made)]

    return findings


def test_the_devices_that_a_loader_feeds_and_the_workers_that_are_enough(told: Callable[..., list[str]]) -> None:
    """By hand: 50 workers make a batch in 32 ms, a step takes 100: 3.1 devices; 16 workers take just 100 ms."""
    (feeds,) = told(sweep())
    assert feeds == (
        "resnet50: with 50 workers the loader makes 2,000 (2,000 to 2,000) samples/s, the most that was measured: as"
        " much as 3.1 (3.1 to 3.1) devices of this model train on. For one device 16 workers are enough."
    )


def test_a_number_that_was_found_between_two_of_them_counts(told: Callable[..., list[str]]) -> None:
    (feeds, *_) = told(sweep(loader(1.6 / 17, "settings", workers=17), resident=1.6 / 17))
    assert feeds.endswith("For one device 17 workers are enough.")


@pytest.mark.parametrize(
    ("batch", "fed", "said"),
    [
        (0.05, 0.1, "no worker is needed: the training's own process reads fast enough."),
        (0.05, 0.12, "For one device 1 worker is enough."),
        (1.6, 0.12, "For one device 16 workers are enough."),
        (8.0, 0.2, "No number of workers that was measured keeps up with one device."),
    ],
)
def test_whether_workers_are_needed_is_told_by_a_step_that_is_fed_without(
    told: Callable[..., list[str]], batch: float, fed: float, said: str
) -> None:
    assert said in told(sweep(step(fed, data="fed", workers=0), batch=batch))[0]


def test_a_loader_that_keeps_up_only_alone_is_not_enough(told: Callable[..., list[str]]) -> None:
    (feeds, *_) = told([*sweep()[:2], loader(0.05, workers=2), step(0.13, data="fed", workers=2)])
    assert feeds.endswith("Alone it keeps up with one device, but a step that it feeds takes longer.")


def test_what_cannot_be_told_is_not_said(told: Callable[..., list[str]]) -> None:
    records = [
        samples("step_time", STEP, "workers", 0.3, data="resident"),
        samples("load_time", STEP, "workers", 0.2, workers=1, memory="pinned"),
    ]
    (feeds,) = told(records)
    assert "Whether it keeps up with one device cannot be said." in feeds


def test_a_step_that_waits_for_its_loader_takes_at_least_so_long(told: Callable[..., list[str]]) -> None:
    waiting = [step(0.3, data="fed", workers=0), step(0.14, data="fed", workers=50)]
    _, first, second = told(sweep(*waiting, batch=8.0))
    assert first.startswith("resnet50: fed without workers, as by default, a step takes 200 %")
    assert "at least" not in first, "nothing is loaded before by the process that trains"
    assert second.startswith("resnet50: fed by 50 workers, a step takes 40 %")
    assert "at least: it cannot keep up" in second


def test_settings_that_matter_are_told_with_how_much_and_the_others_by_name(told: Callable[..., list[str]]) -> None:
    settings = [
        loader(0.1, "settings"),
        loader(0.15, "settings", persistent=False),
        loader(0.1, "settings", prefetch=4),
        loader(0.12, "settings", memory="pageable"),
        loader(0.1, "settings", batch_size=128, units=128),
    ]
    *_, last = told(sweep(*settings))
    assert last.startswith(
        "resnet50, a loader with 8 workers: starting its workers for every epoch instead of once takes 400 ms per epoch"
    )
    assert "a sample in pageable memory takes 20 %" in last
    assert "more time than one in pinned memory" in last
    assert "a sample in batches of 128 takes 50 %" in last
    assert "less time than one in batches of 64" in last
    assert last.endswith("what is loaded with 4 batches ahead per worker cannot be told from the usual.")


def test_copies_beside_the_steps_are_compared_with_those_that_wait(told: Callable[..., list[str]]) -> None:
    copies = {"blocking": 0.12, "non_blocking": 0.12, "overlapped": 0.1}
    fed = [step(seconds, data="fed", workers=16, copy=copy) for copy, seconds in copies.items()]
    *_, last = told(sweep(*fed))
    assert "copied from pinned memory without waiting, a step takes the same time as with copies that wait" in last
    assert "copied beside the step before, a step takes 17 %" in last


def test_emulated_devices_give_no_advice(told: Callable[..., list[str]]) -> None:
    assert told(sweep(), emulated=True)[0].endswith("a trial of the method on CPU workers, and no advice.")
    assert "trial" not in told(sweep())[0]


def test_without_a_data_set_the_reason_is_told(told: Callable[..., list[str]]) -> None:
    skipped = Record.skipped({"workload": "toy"}, "the workload has no dataset()", metric="load_time")
    assert told([skipped]) == ["Not loaded: the workload has no dataset()."]


def test_the_figure_shows_rates_over_workers_and_what_a_device_consumes(make_result: Callable[..., Result]) -> None:
    result = make_result(sweep(step(0.1, data="fed", workers=16)), experiment="input")
    figure = section.plot([result])
    (axes,), shown = figure.axes, [shown.point for shown in points.of(figure)]
    alone = {point.x: point.value for point in shown if point.series == "loader alone"}
    assert alone == pytest.approx({0: 40, 1: 40, 8: 320, 16: 640, 50: 2000})
    assert [point.x for point in shown if point.series == "one device, fed"] == [16]
    (resident,) = [line for line in axes.get_lines() if line.get_linestyle() == "--"]
    assert resident.get_ydata()[0] == pytest.approx(640)
    layout.finish(figure)
    assert "one device, resident" in {text.get_text() for text in axes.texts}
    assert axes.get_ylabel() == "samples per second"


def test_from_night_to_night_the_most_workers_are_followed(make_result: Callable[..., Result]) -> None:
    (number,) = section.nightly(make_result(sweep(), experiment="input"))
    assert number.label == "resnet50, 50 workers"
    assert number.amount / number.record.median == pytest.approx(2000)
    assert number.unit == "samples/s"


def test_a_loader_that_may_be_too_slow_is_not_enough(make_result: Callable[..., Result]) -> None:
    (one,) = loader_results(make_result(sweep(batch=1.7), experiment="input"))
    assert one.enough == 50
    assert one.devices_fed.value == pytest.approx(STEP * 50 / 1.7)
