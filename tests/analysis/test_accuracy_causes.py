"""Which of the textbook's changes makes its second run less accurate, by made-up curves whose truth is known."""

from collections.abc import Callable, Sequence

import pytest
from scalecard.analysis.textbook_epochs import Cause, causes, growing_with_devices, textbook_runs
from scalecard.records.axes import PRINTED, Case, Start, rate_for
from scalecard.records.record import Record, Result
from scalecard.report.sections import dp_concise
from support.builders import timed

Make = Callable[..., Result]
SPEC = {"model": "resnet18", "batch_sizes": [256, 512], "lrs": [0.1, 0.2], "test_images": None, "train_images": None}
RUNS: list[tuple[Start, int]] = [("not lazy", 256), ("all", 256), ("second run", 256), ("second run", 512)]


def accuracy(curve: Sequence[float], **case: object) -> Record:
    axes: Case = {"devices": 1, **case}  # type: ignore[dict-item]
    return Record(case=axes, metric="accuracy", unit="fraction", samples=[list(curve)])


def runs(make_result: Make, *curves: Sequence[float], others: Sequence[float] = (0.5, 0.92)) -> Result:
    """The first run, with all layers initialised, the second run's net, the second run; and torchvision's blocks."""
    records = [
        accuracy(curve, workload=PRINTED, start=start, batch_size=batch, lr=batch / 2560)
        for curve, (start, batch) in zip(curves, RUNS, strict=False)
    ]
    records.append(accuracy(others, workload="resnet18", start="all", batch_size=256, lr=0.1))
    return make_result([accuracy([0.3, 0.99], workload="resnet18", batch_size=256, lr=0.1), *records], spec=SPEC)


def test_each_change_is_compared_with_the_run_before_it(make_result: Make) -> None:
    found = {step.cause: step for step in causes(runs(make_result, [0.5, 0.91], [0.5, 0.9], [0.5, 0.85], [0.5, 0.73]))}
    moved = {cause: round(step.moved, 3) for cause, step in found.items()}
    assert moved == {
        Cause.LAZY_LAYERS: -0.01,
        Cause.SECOND_RUN: -0.05,
        Cause.BATCH_AND_RATE: -0.12,
        Cause.ALL: -0.18,
        Cause.BLOCKS: -0.02,
    }
    # Of 10,000 images each: 2 * sqrt((0.91 * 0.09 + 0.9 * 0.1) / 10,000).
    assert found[Cause.LAZY_LAYERS].error == pytest.approx(0.00829, abs=1e-5)
    assert found[Cause.LAZY_LAYERS].explains_a_drop


def test_a_run_that_falls_by_as_much_between_epochs_proves_nothing(make_result: Make) -> None:
    """The second run had 0.89, then 0.67, then 0.73: what it fell by is more than what it is below the others."""
    steady = [0.5, 0.88, 0.9]
    found = {step.cause: step for step in causes(runs(make_result, steady, steady, steady, [0.89, 0.67, 0.73]))}
    assert found[Cause.BATCH_AND_RATE].error == pytest.approx(0.22)
    assert not found[Cause.BATCH_AND_RATE].explains_a_drop
    assert found[Cause.SECOND_RUN].error < 0.01, "what is still learned is no fall"


def sentences(result: Result) -> list[str]:
    return [finding.text for finding in dp_concise._why(result)]


def test_a_sentence_names_what_explains_the_drop(make_result: Make) -> None:
    why, blocks = sentences(runs(make_result, [0.5, 0.91], [0.5, 0.94], [0.5, 0.90], [0.5, 0.73], others=[0.5, 0.95]))
    assert why.startswith(
        "After 2 epochs on one device, the textbook's first run as printed, at batch 256 with lr 0.1, ends at 0.910 and"
    )
    assert "lazy layers initialised, too, +0.030 (give or take 0.007)" in why
    assert why.endswith("The drop comes with: the first run's net again, and batch 512 with lr 0.2.")
    assert blocks.startswith("Its own residual blocks instead of torchvision's move the accuracy by -0.010")


def test_a_sentence_says_if_there_is_nothing_to_explain(make_result: Make) -> None:
    (why, _) = sentences(runs(make_result, [0.91], [0.91], [0.91], [0.91], others=[0.91]))
    assert why.endswith("There is no drop here to explain.")
    for second in ([0.905], [0.89, 0.67, 0.73]):  # a fifth less, of a run that fell by more between two epochs
        (why, _) = sentences(runs(make_result, [0.91], [0.91], [0.91], second, others=[0.91]))
        assert why.endswith("The drop is within what chance, or a run between two of its epochs, may move it by.")
    (why, _) = sentences(runs(make_result, [0.910], [0.904], [0.898], [0.892], others=[0.91]))
    assert why.endswith("The drop comes with none of them alone.")


def test_nothing_is_said_of_runs_that_are_missing(make_result: Make) -> None:
    result = runs(make_result, [0.91], [0.91], [0.905])
    assert len(textbook_runs(result)) == 3
    assert not list(causes(result))
    assert not sentences(result)


def test_where_batch_and_rate_grow_with_the_devices(make_result: Make) -> None:
    """Three devices with 3 * 0.1, which is no 0.3 to a computer; and two with the batch of one, which do not belong."""
    cases: list[Case] = [
        {"workload": "resnet18", "devices": count, "batch_size": 256 * grown, "lr": rate_for(0.1, grown)}
        for count, grown in ((3, 3), (1, 1), (2, 1))
    ]
    records = [timed([12.0 / int(str(case["devices"]))] * 6, metric="epoch_time", **case) for case in cases]
    records += [accuracy([0.9 - 0.01 * int(str(case["devices"]))], **case) for case in cases]
    result = make_result(records, spec=SPEC)
    assert [record.case["devices"] for record, _ in growing_with_devices(result)] == [1, 3]
    (finding,) = dp_concise._growing(result)
    assert finding.text.startswith("On 3 devices with 3 times the batch and learning rate an epoch is trained 3.00x")
    assert finding.text.endswith("and the accuracy ends at 0.870 instead of 0.890.")
