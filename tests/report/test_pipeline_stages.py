"""What the report says of cut models, from results whose truth is known."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from scalecard.records.record import Record, Result
from scalecard.report.sections import hybrid, model_parallel, pipeline
from support.builders import timed

TEXTBOOK, BALANCED = ({"devices": 2, "cut": name} for name in model_parallel.CUTS)
PIPELINE = {"split_sizes": [1, 2], "batch_size": 4, "image_size": 64}


def steady(seconds: float, *, metric: str = "step_time", blocks: Sequence[int] = (), **case: object) -> Record:
    """Eight samples about a time, which differ by a thousandth."""
    samples = [seconds * (1 + 0.0002 * number) for number in range(-4, 4)]
    return replace(timed(samples, metric=metric, **case), blocks=[*blocks])


SPEC = {"model": "resnet50"}


def texts(section: object, result: Result) -> str:
    return "\n".join(finding.text for finding in section.findings(result))  # type: ignore[attr-defined]


def of_model_parallel() -> list[Record]:
    """One device takes 400 ms; the textbook's stages 120 and 300, the balanced ones 190 and 210."""
    records = [steady(0.4, workload="resnet50", strategy="single device")]
    for cut, times, blocks in (
        (TEXTBOOK, (0.12, 0.3), [8, 10]),
        (BALANCED, (0.19, 0.21), [13, 5]),
    ):
        records.append(steady(0.41, workload="resnet50", strategy="model parallel", blocks=blocks, **cut))
        for stage, seconds in enumerate(times):
            records.append(steady(seconds, workload="resnet50", strategy="stage alone", stage=stage, **cut))
    return records


def test_stages_stand_beside_perfect_balance(make_result: Callable[..., Result]) -> None:
    said = texts(model_parallel, make_result(of_model_parallel(), experiment="model_parallel", spec=SPEC))
    assert "Cut after layer2, 2 devices (blocks 0-7 | 8-17): the stages take 120 ms, 300 ms alone" in said
    assert "43 % more than perfect balance, 210 ms each" in said
    assert "can be more than 1.33x as fast as one device, and with perfect balance 1.90x" in said
    assert "Cut balanced, 2 devices (blocks 0-12 | 13-17): the stages take 190 ms, 210 ms alone" in said
    assert "5 % more than perfect balance" in said
    assert "1.90x as fast" in said
    assert "the devices idle 71 % and 27 % of the time" in said


def test_a_stage_that_was_not_measured_says_nothing_of_balance(make_result: Callable[..., Result]) -> None:
    said = texts(model_parallel, make_result(of_model_parallel()[:3], experiment="model_parallel", spec=SPEC))
    assert "Plain model parallelism, cut after layer2, 2 devices," in said
    assert "perfect balance" not in said


def of_pipeline(*, measured: float, rounds_id: str = "rounds") -> list[Record]:
    """GPipe, 4 micro-batches: stages busy for 100 and 300 ms with their updates, played in 320 ms."""
    whole = [steady(0.4, strategy=name, split_size=4, batch_size=4) for name in pipeline.LINES]
    case = {"strategy": "gpipe", "split_size": 1, "batch_size": 4, **TEXTBOOK}
    step = steady(measured, **case)
    played = steady(0.32, metric="played_time", **case)
    bubble = Record(case=step.case, metric="played_bubble", unit="fraction", samples=[[0.375] * 9])
    alone = []
    for stage, (both, update) in enumerate([(0.09, 0.01), (0.26, 0.04)]):
        own = {"stage": stage, "batch_size": 4, **TEXTBOOK}
        alone.append(steady(both, metric="stage_time", split_size=1, part="forward and backward", **own))
        alone.append(steady(update, metric="stage_time", part="update", **own))
    return [*whole, step, played, bubble, *alone]


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (
            0.4,
            "devices idle 50 % of the time, 38 % if played. That is 1.25x (1.25 to 1.25) the schedule's time, beyond",
        ),
        (0.3264, "1.02x (1.02 to 1.02) the schedule's time, within 5 % of it; the rest, 6.40 ms, is launching"),
    ],
)
def test_a_step_stands_beside_its_schedule_and_the_rest_has_a_name(
    make_result: Callable[..., Result], measured: float, said: str
) -> None:
    found = texts(pipeline, make_result(of_pipeline(measured=measured), experiment="pipeline", spec=SPEC))
    assert said in found
    assert "320 ms simulated from stage times" in found


def test_of_every_cut_the_fastest_step_is_told(make_result: Callable[..., Result]) -> None:
    records = of_pipeline(measured=0.4)
    case = {"strategy": "1f1b", "split_size": 1, "batch_size": 4, **TEXTBOOK}
    faster = [steady(0.35, **case), steady(0.32, metric="played_time", **case)]
    result = make_result([*records, *faster], experiment="pipeline", spec=SPEC)
    (text,) = [finding.text for finding in pipeline.findings(result) if "simulated" in finding.text]
    assert text.startswith("1f1b at split size 1, after layer2, 2 devices: 350 ms")


def test_ours_stands_beside_the_librarys_of_the_same_rounds(make_result: Callable[..., Result]) -> None:
    ours = steady(0.2, strategy="gpipe", split_size=2, batch_size=4, beside="torch gpipe")
    theirs = steady(0.25, strategy="torch gpipe", library=True, split_size=2, batch_size=4)
    result = make_result([*of_pipeline(measured=0.4), ours, theirs], experiment="pipeline", spec=SPEC)
    assert "Our gpipe at split size 2 is 1.25x (1.25 to 1.25) as fast as torch.distributed" in texts(pipeline, result)
    best = max(pipeline.findings(result), key=lambda finding: -finding.topic)
    assert best.text.startswith("The best pipeline, torch gpipe"), "ours beside it is timed elsewhere"


def test_the_balanced_cut_stands_beside_the_textbooks(make_result: Callable[..., Result]) -> None:
    case = {"strategy": "gpipe", "split_size": 1, "batch_size": 4}
    faster = steady(0.3, blocks=[12, 1, 5], **case, **BALANCED)
    result = make_result([*of_pipeline(measured=0.4), faster], experiment="pipeline", spec=SPEC)
    said = texts(pipeline, result)
    assert "gpipe at split size 1, balanced (blocks 0-11 | 12 | 13-17), takes 25 % (25 % to 25 %) less time" in said
    assert "The best pipeline, gpipe with split size 1, cut balanced, 2 devices, is 1.33x" in said
    assert pipeline.fitted(result) is None, "four split sizes of one cut are fitted"


def in_the_tutorial(single: float, plain: float, pipelined: float) -> list[Record]:
    """What the tutorial compares, by its own code; ours take 100 ms."""
    cases: list[tuple[dict[str, object], float]] = [
        ({"strategy": "single device", "split_size": 4}, single),
        ({"strategy": "model parallel", "split_size": 4, **TEXTBOOK}, plain),
        ({"strategy": "textbook", "split_size": 1, **TEXTBOOK}, 2 * pipelined),
        ({"strategy": "textbook", "split_size": 2, **TEXTBOOK}, pipelined),
    ]
    ours = [steady(0.1, batch_size=4, **case) for case, _ in cases]
    return [*ours, *(steady(seconds, metric="tutorial_time", batch_size=4, **case) for case, seconds in cases)]


def test_the_tutorials_own_code_stands_beside_ours_and_what_drawing_takes_is_said(
    make_result: Callable[..., Result],
) -> None:
    result = make_result(in_the_tutorial(0.15, 0.2, 0.125), experiment="pipeline", spec=PIPELINE)
    said = texts(pipeline, result)
    assert "model parallelism takes 200 ms, 2.00x (2.00 to 2.00) our time" in said
    assert "its pipeline at split size 2 takes 125 ms, 1.25x (1.25 to 1.25) our time" in said
    assert "On one device that is 50.0 ms more per batch, for drawing it, sending it" in said


@pytest.mark.parametrize(
    ("times", "order"),
    [
        ((0.15, 0.2, 0.12), "As in the tutorial, its pipeline at split size 2 is the fastest, and model parallelism"),
        ((0.15, 0.12, 0.2), "here model parallelism is the fastest and its pipeline at split size 2 the slowest."),
        ((0.15, 0.15, 0.12), "cannot all be told apart here."),
    ],
)
def test_the_tutorials_order_is_told_only_where_intervals_allow_it(
    make_result: Callable[..., Result], times: tuple[float, float, float], order: str
) -> None:
    assert order in texts(pipeline, make_result(in_the_tutorial(*times), experiment="pipeline", spec=PIPELINE))


def test_ddp_around_a_cut_model_stands_beside_our_own_averaging(make_result: Callable[..., Result]) -> None:
    records = [
        steady(seconds, workload="resnet50", strategy=name, ranks=2, devices=4, batch_size=8)
        for name, seconds in (("hybrid", 0.2), ("DDP", 0.15), ("model parallel", 0.2))
    ]
    said = texts(hybrid, make_result(records, experiment="hybrid", spec={"model": "resnet50"}))
    assert "DistributedDataParallel around the model on two devices takes 25 % (25 % to 25 %) less time than" in said


def test_what_drawing_takes_is_of_one_batch_where_a_call_trains_several(make_result: Callable[..., Result]) -> None:
    """Three batches take 0.4 s, and 0.55 s as the tutorial prints them: 50 ms more for each."""
    case = {"workload": "resnet50", "strategy": "single device", "batches": 3}
    records = [steady(0.4, **case), steady(0.55, metric="tutorial_time", **case)]
    (found,) = model_parallel.tutorial_finding(make_result(records, experiment="model_parallel", spec=SPEC))
    assert "one device takes 550 ms, 1.38x" in found.text
    assert "50.0 ms more per batch" in found.text
