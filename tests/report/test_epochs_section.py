"""What is said of the textbook's epochs, by made-up results whose truth is known."""

from collections.abc import Callable, Sequence

import pytest
from matplotlib import pyplot as plt
from scalecard.analysis.textbook_epochs import epoch_parts
from scalecard.figures import points
from scalecard.records.axes import Way
from scalecard.records.record import Record, Result
from scalecard.report.sections import Topic, dp_concise, dp_scratch
from support.builders import timed

Make = Callable[..., Result]
SPEC = {"train_images": None, "batch_size": 256, "as_printed": [1, 2]}


def epochs(seconds: float, devices: int = 1, way: Way | None = None) -> Record:
    """Eight epochs, of which the slowest takes 7 % longer than the fastest."""
    samples = [seconds * (1 + n / 100) for n in range(8)]
    axes = {"way": way} if way else {}
    return timed(samples, metric="epoch_time", rounds_id="turns", devices=devices, **axes)


def printed(make_result: Make, *, loading: float, waiting: float, devices: Sequence[int] = (1,)) -> Result:
    """Of 2 s as the textbook prints them, so many are what loading and waiting add."""
    records = [
        record
        for count in devices
        for record in (
            epochs(2.0 - loading - waiting, count),
            epochs(2.0 - loading - waiting, count, "resident"),
            epochs(2.0, count, "as printed"),
            epochs(2.0 - loading, count, "synchronised"),
        )
    ]
    return make_result(records, experiment="dp_scratch", spec=SPEC)


def test_the_textbooks_epoch_is_taken_apart_by_what_changes_one_after_the_other(make_result: Make) -> None:
    (parts,) = epoch_parts(printed(make_result, loading=1.2, waiting=0.3))
    assert parts.devices == 1
    assert (parts.loading.value, parts.synchronising, parts.training.value) == pytest.approx((0.6, 0.15, 0.25))
    assert parts.loading.interval is not None
    assert parts.loading.interval.low <= 0.6 <= parts.loading.interval.high


def test_a_sentence_says_what_the_distance_is_made_of(make_result: Make) -> None:
    found = dp_scratch.findings(printed(make_result, loading=1.2, waiting=0.3))
    (sentence,) = [finding.text for finding in found if "as the textbook prints it" in finding.text]
    assert sentence.startswith("Loaded and synchronised as the textbook prints it, an epoch on 1 device takes 2.07 s")
    assert "60 % (60 % to 60 %) of it is what loading adds, 15 % the synchronisation after every batch" in sentence
    assert sentence.endswith("and 25 % (25 % to 25 %) the training.")


@pytest.mark.parametrize(
    ("loading", "said"),
    [(1.2, ": 60 % (60 % to 60 %) of it is what loading adds."), (0, ". What loading adds cannot be told.")],
)
def test_of_the_concise_epoch_loading_alone_is_told(make_result: Make, loading: float, said: str) -> None:
    records = [epochs(2.0 - loading), epochs(2.0 - loading, way="resident"), epochs(2.0, way="loaded")]
    spec = {**SPEC, "model": "resnet18", "batch_sizes": [256], "lrs": [0.1], "test_images": None}
    result = make_result(records, experiment="dp_concise", spec=spec)
    (sentence,) = [finding.text for finding in dp_concise.findings(result) if finding.topic is Topic.AS_PRINTED]
    assert sentence.startswith("Loaded as the textbook prints it, an epoch on 1 device takes 2.07 s (2 s to 2.14 s)")
    assert sentence.endswith(said)


def test_a_synchronisation_that_costs_nothing_has_no_negative_share(make_result: Make) -> None:
    found = dp_scratch.findings(printed(make_result, loading=1.2, waiting=-0.1))
    (sentence,) = [finding.text for finding in found if "textbook prints" in finding.text]
    assert sentence.endswith("is what loading adds. What synchronising after every batch adds cannot be told.")


def test_without_all_three_nothing_is_said(make_result: Make) -> None:
    whole = printed(make_result, loading=1.2, waiting=0.3)
    for left_out in ("as printed", "synchronised", "resident"):
        records = [record for record in whole.records if record.case.get("way") != left_out]
        assert not list(epoch_parts(make_result(records, experiment="dp_scratch")))


@pytest.mark.parametrize(
    ("devices", "said"), [(1, "written by hand"), (2, "by hand-written data parallelism on 2 devices")]
)
def test_a_sentence_compares_the_hand_written_way_with_the_frameworks(
    make_result: Make, devices: int, said: str
) -> None:
    """By hand 0.5 s, 20 % less than the framework's 0.625 s."""
    result = printed(make_result, loading=1.2, waiting=0.3, devices=range(1, devices + 1))
    beside = [epochs(0.625, count, "concise") for count in range(1, devices + 1)]
    made = make_result([*result.records, *beside], experiment="dp_scratch", spec=result.spec)
    (sentence,) = [finding.text for finding in dp_scratch.findings(made) if "hand" in finding.text]
    assert sentence.startswith(f"An epoch of LeNet {said} takes 20 % (20 % to 20 %) less time than one of ")
    assert ("nn.DataParallel" in sentence) == (devices == 2)


def test_the_speed_up_and_the_numbers_of_every_night_are_of_ours(make_result: Make) -> None:
    """As printed, two devices take as long as one; ours take 0.5 s on either."""
    result = printed(make_result, loading=1.2, waiting=0.3, devices=(2, 1))
    assert [parts.devices for parts in epoch_parts(result)] == [1, 2]
    assert dp_scratch.findings(result)[0].headline == "1.00x on 2 devices"
    (number,) = dp_scratch.nightly(result)
    assert number.value == pytest.approx(0.5 * 1.035)


def test_a_panel_has_the_three_times_of_each_number_of_devices(make_result: Make) -> None:
    figure = dp_scratch.plot([printed(make_result, loading=1.2, waiting=0.3)])
    drawn = {row["x"]: row["value"] for row in points.rows(figure) if row["panel"] != "accuracy after each epoch"}
    plt.close(figure)
    assert drawn == pytest.approx(
        {"as printed, 1 device": 2.07, "synchronised, 1 device": 0.828, "ours, 1 device": 0.5175}
    )
