"""From records to words and lines."""

from collections.abc import Callable

import matplotlib.pyplot as plt
import pytest
from scalecard.analysis import formatting, learning
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Interval, Ratio
from scalecard.report.sections import hybrid
from support.builders import repeated, timed

CURVES = Record(case={"devices": 1}, metric="accuracy", unit="fraction", samples=[[0.1, 0.5], [0.2, 0.7], [0.1, 0.6]])


def test_the_final_value_of_curves_is_the_median_of_their_last() -> None:
    assert learning.final(CURVES) == 0.6


def test_a_time_has_its_interval_or_its_number_of_samples() -> None:
    assert "n = 2" in formatting.time(timed([0.010, 0.012]))
    assert formatting.time(timed([0.011] * 12)) == "11 ms (11 ms to 11 ms)"


def test_a_speedup_is_the_inverse_of_the_ratio_of_times() -> None:
    new, old = repeated(0.5), repeated(1.0)
    assert formatting.speedup(new, old).value == pytest.approx(2.0, rel=0.05)
    assert formatting.inverse(Ratio(0.5, Interval(0.4, 0.8))) == Ratio(2.0, Interval(1.25, 2.5))


@pytest.mark.parametrize(
    ("ratio", "word"),
    [
        (Ratio(0.8, Interval(0.7, 0.9)), " less "),
        (Ratio(1.2, Interval(1.1, 1.3)), " more "),
        (Ratio(1.0, Interval(0.999, 1.001)), " same "),
        (Ratio(1.0, Interval(0.8, 1.2)), " no measurable difference "),
        (Ratio(0.5, None), " no measurable difference "),
    ],
)
def test_a_comparison_says_no_more_than_its_verdict(ratio: Ratio, word: str) -> None:
    assert word in formatting.versus("new", ratio, "old")


@pytest.mark.parametrize(
    ("value", "said"),
    [(2870.4, "2,870"), (999.6, "1,000"), (0.24007, "0.24"), (46.0, "46"), (0, "0"), (1.5e6, "1,500,000")],
)
def test_a_number_has_three_digits_and_no_power_of_ten(value: float, said: str) -> None:
    assert formatting.number(value) == said


def test_a_case_has_its_sizes_in_units_for_readers() -> None:
    assert (
        formatting.case({"algorithm": "ring", "devices": 2, "bytes": 1073741824}) == "algorithm ring, devices 2, 1 GiB"
    )


def test_the_ideal_is_that_of_this_platform_alone(make_result: Callable[..., Result]) -> None:
    """Four times the rate of two devices here: 4 x 64 / 0.1 s; the other platform is ten times as slow."""

    def steps(seconds: float) -> list[Record]:
        case = {"workload": "resnet50", "batch_size": 64}
        one = timed([seconds] * 7, metric="step_time", **case, strategy="model parallel", ranks=1, devices=2)
        return [
            one,
            timed(
                [seconds] * 7, metric="step_time", **{**case, "batch_size": 256}, strategy="hybrid", ranks=4, devices=8
            ),
        ]

    results = [
        make_result(steps(seconds), experiment="hybrid", platform=name)
        for seconds, name in ((0.1, "box"), (1.0, "older"))
    ]
    figure = hybrid.plot(results)
    (line,) = [line for line in figure.axes[0].lines if line.get_linestyle() == ":"]
    assert list(line.get_ydata()) == pytest.approx([640, 2560])  # type: ignore[arg-type]
    plt.close(figure)
