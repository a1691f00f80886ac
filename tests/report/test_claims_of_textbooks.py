"""What the textbooks say of scaling, as a sentence that can come out either way: by results whose truth is known."""

from collections.abc import Callable

import pytest
from scalecard.records.record import Record, Result
from scalecard.report.sections import Topic, ddp, strategies
from support.builders import timed

SPEC = {"models": ["lenet", "resnet18"], "accuracy_models": []}


def steady(seconds: float, **case: object) -> Record:
    """Eight samples about a time, which differ by a thousandth."""
    return timed([seconds * (1 + 0.0002 * number) for number in range(-4, 4)], metric="step_time", **case)


def told(section: object, result: Result, topic: Topic) -> str:
    return " ".join(found.text for found in section.findings(result) if found.topic == topic)  # type: ignore[attr-defined]


def of_ddp(on_two: float) -> list[Record]:
    """LeNet takes 10 ms and half as long on two ranks; ResNet-18 takes 40 ms, and its exchange a tenth of computing."""
    records = []
    for model, alone, two, exchange in (("lenet", 0.01, 0.008, 0.005), ("resnet18", 0.04, on_two, 0.004)):
        shared = {"workload": model, "batch_size": 8}
        records += [
            steady(seconds, **shared, scaling=scaling, devices=devices)
            for seconds, scaling, devices in ((alone, "plain", 1), (two, "strong", 2))
        ]
        for option, seconds in (("default", alone), ("no_sync", alone), ("all-reduce alone", exchange)):
            records.append(steady(seconds, **shared, devices=2, option=option, steps=1))
    return records


@pytest.mark.parametrize(
    ("on_two", "end"),
    [
        (0.025, "it is 80 % efficient, LeNet 62 %: it scales better."),
        (0.04, "it is 50 % efficient, LeNet 62 %: it does not scale better."),
        (0.032, "it is 62 % efficient, LeNet 62 %; there is no measurable difference."),
    ],
)
def test_which_network_scales_better_is_told_with_what_its_exchange_takes(
    make_result: Callable[..., Result], on_two: float, end: str
) -> None:
    text = told(ddp, make_result(of_ddp(on_two), experiment="ddp", spec=SPEC), Topic.TEXTBOOKS_CLAIM)
    assert "the exchange takes 10 % of its computing, LeNet's 50 %" in text
    assert text.endswith(end)


@pytest.mark.parametrize(
    ("threads", "said"),
    [
        (
            0.04,
            "That step takes 25 % (25 % to 25 %) less time than one by nn.DataParallel: 40.0 ms (40.0 ms to 40.0 ms).",
        ),
        (
            0.024,
            "That step takes 25 % (25 % to 25 %) more time than one by nn.DataParallel: 24.0 ms (24.0 ms to 24.0 ms).",
        ),
        (None, ""),
    ],
)
def test_the_hand_written_way_is_set_beside_the_frameworks_two_on_the_most_devices(
    make_result: Callable[..., Result], threads: float | None, said: str
) -> None:
    """By hand 30 ms on 8 devices, where DDP takes 20; on 2 devices, which nothing is said of, it is faster."""
    shared = {"workload": "lenet", "batch_size": 8}
    times = {(2, "by hand"): 0.05, (2, "DDP"): 0.06, (8, "by hand"): 0.03, (8, "DDP"): 0.02}
    times |= {(8, "DataParallel"): threads} if threads else {}
    records = [steady(seconds, **shared, devices=count, strategy=way) for (count, way), seconds in times.items()]
    text = told(ddp, make_result(records, experiment="ddp", spec=SPEC), Topic.BY_HAND)
    first = "A step of LeNet by hand-written data parallelism on 8 devices takes 50 % (50 % to 50 %) more time than"
    both = "30.0 ms (30.0 ms to 30.0 ms) and 20.0 ms (20.0 ms to 20.0 ms)."
    assert text == f"{first} one by DDP: {both} {said}".strip()


def test_what_failed_is_not_set_beside_anything(make_result: Callable[..., Result]) -> None:
    alone = steady(0.03, workload="lenet", batch_size=8, devices=2, strategy="by hand")
    assert told(ddp, make_result([alone], experiment="ddp", spec=SPEC), Topic.BY_HAND) == ""


def step(strategy: str, devices: int, seconds: float, *, scaling: str = "strong", units: int = 8) -> Record:
    case = {"workload": "gpt", "strategy": strategy, "devices": devices, "scaling": scaling}
    return steady(seconds, **case, batch_size=units, unit="tokens", units=units)


@pytest.mark.parametrize(
    ("weak", "said"),
    [
        (0.125, "trains at most 80 % (80 % to 80 %) of what one does alone, by DDP on 2 with weak scaling."),
        (0.1, "trains at most 100 % (100 % to 100 %) of what one does alone"),
        (0.08, "trains at most 125 % (125 % to 125 %) of what one does alone"),
    ],
)
def test_how_much_a_device_of_several_trains_is_set_beside_one_alone(
    make_result: Callable[..., Result], weak: float, said: str
) -> None:
    records = [step("single device", 1, 0.1), step("DDP", 2, 0.08), step("DDP", 2, weak, scaling="weak", units=16)]
    text = told(strategies, make_result(records, experiment="strategies"), Topic.ONE_IS_MOST_EFFICIENT)
    assert said in text
    ends = {0.125: "and it is.", 0.1: "here there is no measurable difference.", 0.08: "here it is not."}
    assert text.endswith(ends[weak])


def test_threads_are_set_beside_processes_and_the_cause_is_told_only_of_slower_ones(
    make_result: Callable[..., Result],
) -> None:
    for seconds, end in (
        (0.16, "it sends the model in every step."),
        (0.08, "takes the same time as DDP (within 1 %)."),
    ):
        records = [step("single device", 1, 0.1), step("DDP", 2, 0.08), step("DataParallel", 2, seconds)]
        text = told(strategies, make_result(records, experiment="strategies"), Topic.THREADS_OR_PROCESSES)
        assert text.endswith(end)
