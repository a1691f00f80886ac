"""What is recommended, second, tied, too large and to be avoided, on made-up results whose truth is known."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from scalecard.analysis.strategy_choice import (
    LOST,
    TOO_LARGE,
    UNABLE,
    Choice,
    StrategyRun,
    avoid,
    choose,
    fewest,
    strategy_runs,
)
from scalecard.records.record import Reason, Record, Result
from scalecard.report.advice_text import sentences
from support.eight_gpus import BATCH, DEVICES, measured, step, strategies, timed, too_large

Make = Callable[..., Result]


def found(make_result: Make, records: Sequence[Record]) -> list[StrategyRun]:
    result = measured(make_result, strategies=records).of("strategies")
    assert result is not None
    return strategy_runs(result, "gpt")


def chosen(make_result: Make, *records: Record, scaling: str = "strong") -> Choice:
    choice = choose(found(make_result, records), scaling)
    assert choice is not None
    return choice


def told(make_result: Make, records: Sequence[Record]) -> list[str]:
    result = measured(make_result, strategies=records).of("strategies")
    assert result is not None
    return [one.text for one in sentences(result, "gpt")]


def test_the_truth_of_eight_gpus(make_result: Make) -> None:
    use, batch, beware = told(make_result, strategies())
    assert use.startswith(
        "gpt, plain SGD in float32: with the same batch of 64 samples use DDP on 8 devices: 3.42x (3."
    )
    assert "43 % efficient, 2,190 samples/s, 20 GiB on the fullest device; the runner-up, FSDP gradients on 8" in use
    assert "scaling collapses at 8 samples per device, where DDP on 8 devices does 43 % (43 % to 43 %)" in batch
    assert "it holds at 16 samples per device (DDP on 4 devices: 67 % (67 % to 67 %) efficient)" in batch
    assert "with 64 samples on each, DDP on 8 devices is 93 % (92 % to 93 %) efficient" in batch
    assert beware == (
        "gpt, plain SGD in float32: with the same batch on 8 devices, avoid model parallel (0.96x): slower than one"
        " device; DataParallel (1.41x): less than half as fast as DDP."
    )


def test_what_is_timed_at_another_batch_is_not_compared_with_strong_scaling(make_result: Make) -> None:
    """Weak scaling has by far the highest rate."""
    assert chosen(make_result, *strategies()).best.scaling == "strong"
    assert chosen(make_result, *strategies(), scaling="weak").best.rate > 4000


def test_a_tie_is_said_and_is_no_ground_to_avoid(make_result: Make) -> None:
    records = [
        step("single device", 1, 0.1),
        step("DDP", 2, 0.06, noise=0.2),
        step("FSDP gradients", 2, 0.061, noise=0.2),
    ]
    choice = chosen(make_result, *records)
    assert len(choice.tied) == 1
    (use, *_) = told(make_result, records)
    assert "no measurable difference" in use
    assert avoid(found(make_result, records)) == []


def test_of_what_takes_the_same_time_the_fewest_devices_are_recommended(make_result: Make) -> None:
    """But not of what merely cannot be told apart."""
    same = [step("single device", 1, 0.1), step("DDP", 4, 0.05, noise=1e-4), step("DDP", 8, 0.0499, noise=1e-4)]
    assert chosen(make_result, *same).best.devices == 4
    unclear = [step("single device", 1, 0.1), step("DDP", 4, 0.052, noise=0.1), step("DDP", 8, 0.05, noise=0.1)]
    assert chosen(make_result, *unclear).best.devices == 8


def test_one_device_is_enough_if_several_are_slower_or_not_surely_faster(make_result: Make) -> None:
    slower = told(make_result, [step("single device", 1, 0.1), step("DDP", 2, 0.12)])
    enough = (
        "gpt, plain SGD in float32: with the same batch one device will do, since nothing on several is surely faster"
    )
    assert slower[0].startswith(f"{enough}; the runner-up, DDP on 2 devices, takes 20 %")
    unclear = told(make_result, [step("single device", 1, 0.1, noise=0.3), step("DDP", 2, 0.085, noise=0.3)])
    assert unclear[0].startswith(f"{enough}; the runner-up, DDP on 2 devices, and it show no measurable difference")


def test_what_does_not_fit_on_one_device(make_result: Make) -> None:
    records = [
        too_large("single device", 1),
        *(too_large("DDP", count) for count in DEVICES),
        too_large("FSDP parameters", 2),
        step("FSDP parameters", 4, 0.2),
        step("FSDP parameters", 8, 0.12),
    ]
    run = {(p.strategy, p.devices): p for p in found(make_result, records)}
    assert run["DDP", 8].status == TOO_LARGE
    assert [p.devices for p in fewest(list(run.values()))] == [4]
    use, *_ = told(make_result, records)
    assert use.startswith(
        "gpt, plain SGD in float32: it does not fit on one device, but on 4 (by FSDP parameters); use FSDP parameters"
        " on 8 devices: 533"
    )


def test_what_fits_nowhere_is_said_once(make_result: Make) -> None:
    records = [too_large("single device", 1), *(too_large("DDP", count) for count in DEVICES)]
    assert told(make_result, records) == [
        "gpt, plain SGD in float32: it fits nowhere up to 8 devices, by any strategy; try a smaller batch, or more"
        " devices."
    ]


def test_without_strong_scaling_nothing_is_said_of_one_batch(make_result: Make) -> None:
    """Nothing on several devices was tried with one device's batch, so nobody knows whether it pays."""
    weak = [step("single device", 1, 0.1), step("DDP", 8, 0.12, "weak")]
    (only,) = told(make_result, weak)
    assert only.startswith("gpt, plain SGD in float32: with 64 samples on each, DDP on 8 devices is ")


def test_what_only_fits_with_its_own_batch_on_each_device_fits_somewhere(make_result: Make) -> None:
    records = [too_large("single device", 1), step("FSDP parameters", 8, 0.2, "weak")]
    use, *others = told(make_result, records)
    assert use == "gpt, plain SGD in float32: it does not fit on one device, but on 8 (by FSDP parameters)."
    assert not any("nowhere" in text for text in others)


def test_what_to_avoid_names_the_devices_on_which_it_was_compared(make_result: Make) -> None:
    records = [
        step("single device", 1, 0.1),
        step("DDP", 8, 0.03),
        step("DataParallel", 8, 0.09),
        step("DDP", 16, 0.1, "weak"),
    ]
    assert told(make_result, records)[-1].startswith(
        "gpt, plain SGD in float32: with the same batch on 8 devices, avoid DataParallel"
    )


def test_a_lost_rank_and_an_unsuitable_model_are_not_too_large(make_result: Make) -> None:
    lost = Record.failed({"workload": "gpt", "devices": 2}, "rank 1 was killed", reason=Reason.LOST, metric="step_time")
    unable = Record.skipped(step("torch gpipe", 2, 1.0).case, "3 blocks do not make 4 stages", metric="step_time")
    assert [run.status for run in found(make_result, [lost, unable])] == [LOST, UNABLE]
    (said,) = told(make_result, [lost, unable])
    assert "nothing is recommended, since not all could be compared (any other on 2 devices: " in said


def test_one_device_alone_is_no_choice(make_result: Make) -> None:
    needs_two = Record.skipped({"workload": "gpt", "devices": 2}, "needs 2 devices", metric="step_time")
    assert told(make_result, [step("single device", 1, 0.1), needs_two]) == []


@pytest.mark.parametrize(("seconds", "avoided"), [(0.055, False), (0.062, True)])
def test_more_than_twice_the_time_of_the_best_is_to_be_avoided(
    make_result: Make, seconds: float, avoided: bool
) -> None:
    records = [step("single device", 1, 0.1), step("DDP", 8, 0.03), step("DataParallel", 8, seconds)]
    assert bool(avoid(found(make_result, records))) == avoided


def test_the_rate_decides_where_batches_differ(make_result: Make) -> None:
    """On 3 devices a batch of 63 takes less time than one of 64 at a lower rate."""
    three = step("DDP", 3, 0.0495)
    three = replace(three, case={**three.case, "batch_size": 60, "units": 60})
    choice = chosen(make_result, step("single device", 1, 0.1), three, step("DDP", 2, 0.05))
    assert choice.best.devices == 2
    assert choice.others[0][1].value == pytest.approx(0.0495 / 0.05 * BATCH / 60, rel=0.01)


def test_samples_too_few_for_an_interval_settle_nothing(make_result: Make) -> None:
    short = [replace(record, samples=[record.samples[0][:3]], telemetry=[]) for record in strategies()]
    assert avoid(found(make_result, short)) == []
    use, *rest = told(make_result, short)
    assert "one device will do" in use
    assert not any("collapses" in sentence for sentence in rest)


def test_nodes_are_named(make_result: Make) -> None:
    far = timed({**step("DDP", 8, 1.0).case, "nodes": 2}, 0.02, "gpt 8 2")
    assert chosen(make_result, step("single device", 1, 0.1), far).best.where == "DDP on 8 devices on 2 nodes"
