"""Whether several devices learn what one does, in numbers worked out by hand, in a sentence and on the first screen."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from scalecard.analysis.learning import compare_learning
from scalecard.records.record import Record, Result
from scalecard.report import first_screen
from scalecard.report.section import Section
from scalecard.report.sections import Topic, accuracies, ddp
from support.every_experiment import every_result

Make = Callable[..., Result]


def curve(devices: int, *values: float, workload: str = "lenet") -> Record:
    case = {"workload": workload, "devices": devices, "data": "fashion-mnist"}
    return Record(case=case, metric="accuracy", unit="fraction", samples=[list(values)])


@pytest.mark.parametrize(
    ("one", "most", "images", "error", "said"),
    [
        # 2 sqrt((0.91 x 0.09 + 0.1 x 0.9) / 10000)
        (0.91, 0.10, None, 0.0083, "training on 8 ranks does not learn what one does, whatever its speed."),
        (0.91, 0.51, None, 0.0115, "on fashion-mnist images (give or take 0.012)."),  # half of 0.81 is kept, and more
        (0.91, 0.50, None, 0.0115, "does not learn what one does, whatever its speed."),  # 0.40 of 0.81
        (0.80, 0.84, 400, 0.0543, "on fashion-mnist images (give or take 0.054)."),
        (0.12, 0.10, 400, 0.0442, "one rank did not learn, so accuracy says nothing."),
        (0.91, math.nan, None, math.nan, "does not learn what one does, whatever its speed."),
    ],
)
def test_what_several_devices_learn_is_set_beside_one(
    make_result: Make, one: float, most: float, images: int | None, error: float, said: str
) -> None:
    curves = [curve(8, 0.2, most), curve(1, 0.3, one), curve(2, 0.3, 0.9)]
    result = make_result(curves, experiment="ddp", spec={"test_images": images})
    (found,) = compare_learning(result, result.select("accuracy"))
    assert found.error == pytest.approx(error, abs=5e-5, nan_ok=True)
    sentence = accuracies(found, "rank")
    assert sentence.text.endswith(said)
    assert (sentence.topic is Topic.ALERT) == ("does not learn" in said)


def test_without_one_device_or_several_nothing_is_compared(make_result: Make) -> None:
    for curves in ([curve(1, 0.9)], [curve(2, 0.9), curve(4, 0.1)]):
        assert [*compare_learning(make_result(curves, spec={"test_images": None}), curves)] == []
    apart = [curve(1, 0.9), curve(2, 0.9), curve(1, 0.5, workload="resnet18"), curve(2, 0.4, workload="resnet18")]
    assert len([*compare_learning(make_result(apart, spec={"test_images": None}), apart)]) == 2


def test_training_that_diverged_on_several_devices_is_said_on_the_first_screen() -> None:
    """Planted: two ranks end at chance, though they are fast and every step was proven."""
    (ddp,) = [result for result in every_result("box", gpus=2) if result.experiment == "ddp"]

    def failed(on_two: float) -> list[tuple[str, str]]:
        curves = [curve(1, 0.2, 0.9), curve(2, 0.2, on_two)]
        records = [*(record for record in ddp.records if record.metric != "accuracy"), *curves]
        return first_screen.of([Section.of(replace(ddp, records=records))], []).failed

    before = failed(0.9)
    assert failed(0.1)[: len(before)] == before
    ((name, said),) = failed(0.1)[len(before) :]
    assert name == "ddp"
    assert "training on 2 ranks does not learn what one does" in said


def test_training_that_is_lost_over_nodes_alone_is_said_with_their_number(make_result: Make) -> None:
    """One node's ranks learn; of two nodes they end at chance. One device is measured within a node alone."""
    over = curve(16, 0.1, 0.1)
    curves = [curve(1, 0.2, 0.9), curve(8, 0.2, 0.9), replace(over, case={**over.case, "nodes": 2})]
    spec = {"models": ["lenet"], "accuracy_models": ["lenet"], "test_images": None}
    found = [each for each in ddp.findings(make_result(curves, experiment="ddp", spec=spec)) if "accuracy" in each.text]
    within, lost = sorted(found, key=lambda each: each.topic, reverse=True)
    assert (within.topic, lost.topic) == (Topic.ACCURACY, Topic.ALERT)
    assert lost.text.startswith("LeNet over 2 nodes: Test accuracy after 2 epochs is 0.900 on one rank and 0.100 on 16")
