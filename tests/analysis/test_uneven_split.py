"""What is said of a divided minibatch, by made-up results whose truth is known."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from scalecard.analysis.uneven_split import divisions, over_in_rounds
from scalecard.figures import points
from scalecard.records.axes import Case
from scalecard.records.journal import merged
from scalecard.records.record import Record, Result
from scalecard.report.sections import heterogeneous
from support.builders import timed

NAMES = ("GPU 0", "CPU")
WHOLE = 64


def case(slowed: int, names: Sequence[str], **axes: Any) -> Case:
    return {"workload": "lenet", "pairing": " and ".join(names), "batch_size": WHOLE, "slowed": slowed, **axes}


def made(
    together: dict[int, float],
    *,
    alone: float = 10.0,
    before: float = 10.0,
    share: float = 0.75,
    slowed: int = 1,
    names: Sequence[str] = NAMES,
    noise: float = 0.001,
) -> list[Record]:
    """Seconds by the first device's samples; the first alone takes `alone` beside them, and took `before` earlier."""

    def samples(seconds: float, rounds_id: str, **axes: Any) -> Record:
        spread = [seconds * (1 + noise * (n % 5 - 2)) for n in range(20)]
        return timed(spread, metric="step_time", rounds_id=rounds_id, **case(slowed, names, **axes))

    records = []
    for name, whole in zip(names, (before, 40.0), strict=True):
        records += [
            samples(whole * n / WHOLE, "before", part="alone", place=name, share=n) for n in (1, WHOLE // 2, WHOLE)
        ]
    own = case(slowed, names, part="predicted")
    records.append(Record(case=own, metric="predicted_share", unit="fraction", samples=[[share]]))
    records.append(Record(case=own, metric="predicted_time", unit="s", samples=[[7.5]]))
    beside = {WHOLE: alone, **together}
    return records + [samples(seconds, "beside", part="together", share=n) for n, seconds in beside.items()]


@pytest.fixture
def told(make_result: Callable[..., Result]) -> Callable[..., list[str]]:
    """The text of the gain and of the prediction, after the headline."""

    def findings(*args: Any, **options: Any) -> list[str]:
        result = make_result(made(*args, **options))
        environment = {**result.environment, "emulated": "names" in options}
        gain, prediction = heterogeneous.findings(replace(result, environment=environment))
        return [gain.headline, gain.text, prediction.text]

    return findings


def test_a_gain_is_told_for_the_best_and_for_the_predicted_division(told: Callable[..., list[str]]) -> None:
    headline, gain, prediction = told({32: 20.0, 48: 8.0, 50: 7.5})
    assert headline == "1.33x by the slower device"
    assert "50 samples on GPU 0 and 14 on CPU, the best of 3 divisions measured, takes 25 %" in gain
    assert "less time than GPU 0 alone" in gain
    assert "the predicted division, chosen before it was measured, takes 20 %" in gain
    assert "48 of 64 samples on GPU 0 should make both finish at the same time, after 7.50 s" in prediction
    assert "this takes 7 %" in prediction
    assert "CPU workers" not in gain
    assert "changed" not in prediction


def test_no_gain_is_a_finding_with_its_number(told: Callable[..., list[str]]) -> None:
    headline, gain, prediction = told({62: 12.0, 63: 11.0, 32: 30.0}, share=1.0)
    assert headline == "no gain by the slower device"
    assert "63 samples on GPU 0 and 1 on CPU" in gain
    assert "takes 10 % (10 % to 10 %) more time than GPU 0 alone. CPU does not help." in gain
    assert "64 samples on GPU 0 and 0 on CPU, a step takes 10 s (9.99 s to 10.0 s), the best" in prediction


def test_a_best_by_chance_is_no_gain(told: Callable[..., list[str]]) -> None:
    headline, gain, _ = told({48: 9.99, 32: 20.0}, noise=0.2)
    assert headline == "no gain by the slower device"
    assert "no measurable difference" in gain or "takes the same time" in gain


@pytest.mark.parametrize(
    ("slowed", "names", "words"),
    [
        (3, ("1 core", "1 core, slowed 3x"), "one computes its share 3 times, to stand for a slower device"),
        (1, ("6 cores", "2 cores"), "unequal numbers of cores to stand for unequal devices"),
    ],
)
def test_what_stands_for_unequal_devices_is_told(
    told: Callable[..., list[str]], slowed: int, names: tuple[str, str], words: str
) -> None:
    _, gain, _ = told({48: 8.0}, slowed=slowed, names=names)
    assert words in gain


def test_a_machine_that_changed_in_between_is_told(told: Callable[..., list[str]]) -> None:
    _, _, prediction = told({48: 8.0}, before=12.5)
    assert "the machine changed: GPU 0 alone, in the rounds of the divisions, takes 20 %" in prediction
    assert "less time than in those before" in prediction


def test_processes_that_predict_differently_are_compared_in_the_rounds_they_share() -> None:
    """The second process is a slower one, and the only one that timed this share: 8 against 10, not against 7.5."""
    alone = merged(
        [
            [timed([5.0] * 8, metric="step_time", rounds_id="a", share=64)],
            [timed([10.0] * 8, metric="step_time", rounds_id="b", share=64)],
        ]
    )[0]
    (new,) = merged([[timed([8.0] * 8, metric="step_time", rounds_id="b", share=48)]])
    assert over_in_rounds(new, alone).value == pytest.approx(0.8)
    apart = timed([8.0] * 8, metric="step_time", rounds_id="c", share=48)
    assert over_in_rounds(apart, alone).value == pytest.approx(8 / 7.5)


def test_a_pair_without_a_prediction_is_no_division(make_result: Callable[..., Result]) -> None:
    skipped = Record.skipped({"pairing": "two devices"}, "needs 2 devices, this machine has 1", metric="step_time")
    result = make_result([skipped])
    assert divisions(result) == []
    (finding,) = heterogeneous.findings(result)
    assert finding.text == "Not divided: needs 2 devices, this machine has 1."
    heterogeneous.plot([result])


def test_every_share_is_drawn_with_its_whisker(make_result: Callable[..., Result]) -> None:
    figure = heterogeneous.plot([make_result(made({32: 20.0, 48: 8.0, 50: 7.5}))])
    left, _ = figure.axes
    shares: dict[str, list[float]] = {}
    for shown in points.of(figure):
        if shown.axes is left:
            shares.setdefault(shown.point.series.split(" ")[-1], []).append(float(shown.point.x))
            assert shown.point.low <= shown.point.value <= shown.point.high
    assert sorted(shares["together"]) == [32, 48, 50]
    assert sorted(shares["alone"]) == [0, 1, 32, 32, 63, 64], "what is left for the first device"
