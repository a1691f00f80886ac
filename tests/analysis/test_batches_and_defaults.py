"""Where scaling collapses, and which settings pay, on made-up results whose truth is known."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from scalecard.analysis.setting_gains import Change, best, changes
from scalecard.analysis.strategy_choice import Batches, batches, strategy_runs
from scalecard.records.axes import Case
from scalecard.records.record import Record, Result
from scalecard.report.advice_text import on_data_parallel, on_defaults
from support.eight_gpus import case_of, ddp, local, measured, step, strategies, timed

Make = Callable[..., Result]
OPTIONS = {
    "default": (1, 0.0200),
    "no_sync": (1, 0.0150),
    "bucket 50 MiB": (1, 0.0190),
    "bucket 1 MiB": (1, 0.0240),
    "static_graph": (1, 0.0200),
    "fp16 hook": (1, 0.0180),
    "accumulate 2": (2, 0.0360),
    "all-reduce alone": (1, 0.0100),
}


def of(make_result: Make, records: list[Record]) -> Batches:
    result = measured(make_result, strategies=records).of("strategies")
    assert result is not None
    return batches(result, "gpt", strategy_runs(result, "gpt"))


def test_scaling_collapses_where_a_device_does_less_than_half(make_result: Make) -> None:
    found = of(make_result, strategies())
    assert found.collapse is not None
    assert (found.collapse.batch, found.collapse.what) == (8, "DDP on 8 devices")
    assert found.collapse.share.value == pytest.approx(0.427, abs=0.005)
    assert found.least is not None
    assert found.least.batch == 16
    assert [point.batch for point in found.alone] == [32, 16, 8, 4]
    assert [point.collapsed for point in found.alone] == [False, False, False, True]
    assert found.alone[-1].share.value == pytest.approx(4 / local(4) / (64 / local(64)), rel=0.01)


def test_one_device_alone_says_it_where_no_strategy_was_timed_with_so_few(make_result: Make) -> None:
    records = [record for record in strategies() if record.case["devices"] != 8]
    found = of(make_result, records)
    assert found.collapse is not None
    assert (found.collapse.batch, found.collapse.what) == (4, "one device alone")


def test_a_slow_pipeline_is_no_collapse_of_the_batch(make_result: Make) -> None:
    found = of(make_result, [step("single device", 1, 0.1), step("our gpipe", 2, 0.3), step("DDP", 2, 0.06)])
    assert found.collapse is None
    assert [point.batch for point in found.shared] == [32]


def test_near_half_nothing_is_said(make_result: Make) -> None:
    found = of(make_result, [step("single device", 1, 0.1, noise=0.1), step("DDP", 2, 0.1, noise=0.1)])
    assert (found.collapse, found.least) == (None, None)


def by_setting(found: list[Change]) -> dict[str, Change]:
    return {change.setting: change for change in found}


def test_options_of_ddp_over_its_default_per_batch(make_result: Make) -> None:
    found = changes(measured(make_result, ddp=ddp(OPTIONS)))
    ratios = {name: change.ratio.value for name, change in by_setting(found).items()}
    assert set(ratios) == set(OPTIONS) - {"default", "no_sync", "all-reduce alone"}
    assert ratios["accumulate 2"] == pytest.approx(0.9, abs=0.005), "two batches in 36 ms, one in 20 ms"
    assert ratios["bucket 1 MiB"] == pytest.approx(1.2, abs=0.005)
    assert {change.setting for change in best(found)} == {"bucket 50 MiB", "fp16 hook", "accumulate 2"}


def test_the_sentence_on_defaults_names_what_pays_and_its_price(make_result: Make) -> None:
    (said,) = on_defaults(changes(measured(make_result, ddp=ddp(OPTIONS))))
    assert said.startswith(
        "resnet18 by DDP on 8 devices: bucket 50 MiB takes 5 % (5 % to 5 %) less time than DDP's default"
    )
    assert "DDP's default (the best of 2); " in said
    assert "less time than DDP's default per batch (fewer updates, each of a larger batch)" in said
    assert "gradients are rounded to float16" in said
    assert "1 MiB" not in said.replace("50 MiB", "")


def test_without_any_gain_the_defaults_are_kept(make_result: Make) -> None:
    slow = {name: (count, seconds * (1 if name == "default" else 1.3)) for name, (count, seconds) in OPTIONS.items()}
    (said,) = on_defaults(changes(measured(make_result, ddp=ddp(slow))))
    assert said == "resnet18 by DDP on 8 devices: keep the defaults; of 5 other settings none is surely faster."


def test_fsdp_that_keeps_its_parameters_is_a_setting_on_the_most_devices(make_result: Make) -> None:
    (change,) = changes(measured(make_result, strategies=strategies()))
    assert change.what == "gpt by FSDP on 8 devices"
    assert change.ratio.value == pytest.approx(1.15 / 1.3, abs=0.005)


def split(size: int, seconds: float, implementation: str = "gpipe", **case: object) -> Record:
    own: Case = {
        "workload": "resnet50",
        "strategy": implementation,
        "split_size": size,
        "devices": 2,
        "cut": "after layer2",
        "batch_size": 120,
    }
    return timed({**own, **case}, seconds, "pipeline", metric="step_time")  # type: ignore[dict-item]


def test_the_split_size_of_the_fastest_pipeline_over_the_tutorials(make_result: Make) -> None:
    records = [
        split(20, 0.30),
        split(12, 0.27),
        split(3, 0.5),
        split(120, 0.4),
        split(20, 0.4, "1f1b"),
        split(12, 0.35, "1f1b"),
    ]
    found = changes(measured(make_result, {"batch_size": 120}, pipeline=records))
    assert {change.what for change in found} == {"ResNet-50 by gpipe, cut after layer2, on 2 devices"}
    assert {name: round(change.ratio.value, 2) for name, change in by_setting(found).items()} == {
        "split size 3": 1.67,
        "split size 12": 0.9,
    }


def test_a_pipeline_without_the_tutorials_split_has_no_default(make_result: Make) -> None:
    assert changes(measured(make_result, {"batch_size": 2}, pipeline=[split(1, 0.3)])) == []


def test_data_parallel_of_one_process_is_to_be_avoided_if_ddp_is_surely_faster(make_result: Make) -> None:
    def epoch(devices: int, seconds: float) -> Record:
        return timed(
            {"devices": devices, "batch_size": 256, "lr": 0.1}, seconds, f"epoch {devices}", metric="epoch_time"
        )

    spec = {"model": "resnet18", "models": ["resnet18"], "batch_sizes": [256, 512], "lrs": [0.1, 0.2]}
    slow = measured(make_result, spec, dp_concise=[epoch(1, 14.1), epoch(8, 10.0)], ddp=ddp(OPTIONS))
    (said,) = on_data_parallel(slow)
    assert said.startswith("resnet18: avoid nn.DataParallel: it is 1.41x (")
    assert "as fast on 8 devices as on one, and DDP 5.0" in said
    fast = measured(make_result, spec, dp_concise=[epoch(1, 60.0), epoch(8, 10.0)], ddp=ddp(OPTIONS))
    assert on_data_parallel(fast) == []
    fewer = measured(make_result, spec, dp_concise=[epoch(1, 14.1), epoch(4, 10.0)], ddp=ddp(OPTIONS))
    assert on_data_parallel(fewer) == [], "of different numbers of devices"


def test_a_batch_that_grows_is_no_share_of_one_batch(make_result: Make) -> None:
    """Weak scaling leaves each device its whole batch."""
    slow = replace(step("DDP", 2, 0.5, "weak"), case=case_of("DDP", 2, "weak"))
    assert of(make_result, [step("single device", 1, 0.1), slow]).shared == []
