"""The section on tuning against numbers worked out by hand: gains, what helps, what compiling costs, and efficiency."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from scalecard.analysis import setting_gains, step_records
from scalecard.records.axes import Case, combination, rungs_of
from scalecard.records.record import Count, Record, Result, Telemetry
from scalecard.report import first_screen
from scalecard.report.section import Section
from scalecard.report.sections import by_topic, tuning

SPEC = {
    "epochs_of": "resnet18",
    "epoch_batch_size": 256,
    "train_images": None,
    "test_images": None,
}
SCATTER = (0.998, 0.999, 1.0, 1.0, 1.001, 1.002, 1.0)


def placed(rungs: Sequence[str]) -> Case:
    return {rung: place for place, rung in enumerate(rungs, 1)}


def step(*rungs: str, seconds: float, devices: int = 1, times: int = 1) -> Record:
    """64 samples on each device, or as many times more."""
    size, own = 64 * devices * times, placed(rungs) | ({"batch_factor": times} if times > 1 else {})
    case: Case = {"workload": "mine", "devices": devices, "strategy": "DDP" if devices > 1 else "single device"}
    return Record(
        case={**case, **own, "batch_size": size, "unit": "samples", "units": size},
        metric="step_time",
        unit="s",
        samples=[[seconds * scatter for scatter in SCATTER]],
        work=[Count(name="FLOPs", counted=64e10, expected=64e10)],
        telemetry=[Telemetry(rounds_id=f"of {devices}", stopped="7 rounds")],
    )


@pytest.fixture
def result(make_result: Callable[..., Result]) -> Result:
    """bf16 halves the step and compile takes a fifth of it; both together leave 40 %; fused costs a tenth more."""
    compiled = step("compile", seconds=0.08)
    records = [
        step(seconds=0.1),
        step("bf16", seconds=0.05),
        compiled,
        step("bf16", "compile", seconds=0.04),
        step("fused", seconds=0.11),
        step("graphs", seconds=0.1),
        step("bf16", "compile", seconds=0.06, times=2),
        replace(compiled, metric="compile_time", samples=[[30.0]], telemetry=[], work=[]),
        step(seconds=0.125, devices=4),
        step("bf16", seconds=0.08, devices=4),
        step("bf16", "compile", seconds=0.08, devices=4),
    ]
    return replace(make_result(records, experiment="tuning"), spec=SPEC)


def test_where_nothing_scales_the_first_screen_says_what_settings_bring(result: Result) -> None:
    """40 % of the plain step is 2.5 times as fast; on CPUs it is no advice."""
    gpu = replace(result, environment={**result.environment, "emulated": False})
    ((workload, brought),) = first_screen.of([Section.of(gpu)], []).tuned
    assert workload == "mine"
    assert re.fullmatch(r"2\.50x ± 0\.\d\d with bf16 \+ compile, float32 being 1x", brought)
    emulated = replace(result, environment={**result.environment, "emulated": True})
    assert first_screen.of([Section.of(emulated)], []).tuned == []


def test_what_is_found(result: Result) -> None:
    """After 30 / (0.1 - 0.08) steps compiling is repaid. Of 4 devices, 0.1 / 0.125 are used in float32."""
    texts = [finding.text for finding in by_topic(tuning.findings(result))]
    assert texts[0].startswith("mine: bf16 + compile takes 60 % (60 % to 60 %) less time than the plain float32 step")
    assert "the best of 5 combinations at one batch size: 2.50x (2.50 to 2.50) the samples/s." in texts[0]
    assert texts[1] == (
        "mine, each rung alone on one device: bf16 (2.00x), compile (1.25x) help; fused (0.91x) costs time;"
        " graphs (1.00x) makes no difference that can be told."
    )
    assert texts[2] == (
        "mine under DDP on 4 devices, the batch growing with them: 80 % efficient in float32, 50 % with bf16"
        " + compile; there it is 1.56x (1.56 to 1.56) as fast as float32."
    )
    assert texts[3] == (
        "mine: with torch.compile, the first step takes 30 s, repaid after 1,500 steps."
        " It is not part of any other time."
    )
    assert texts[4] == (
        "mine: of the larger batches, 128 samples with bf16 + compile are best: 1.33 times the samples/s of 64."
    )


def test_a_ladder_tells_apart_what_stands_alone_and_on_others(result: Result) -> None:
    single, several = setting_gains.ladders(result)
    assert (single.devices, several.devices) == (1, 4)
    assert [combination(record.case) for record in single.alone] == ["bf16", "compile", "fused", "graphs"]
    assert [combination(record.case) for record in single.cumulative] == ["bf16", "bf16 + compile"]
    assert [step_records.dtype_of(record) for record in single.cumulative] == ["bfloat16", "bfloat16"]
    assert single.gain(single.larger[0]).value == pytest.approx(2 * 0.1 / 0.06)


def test_of_a_recipe_in_bf16_everything_is_told_beside_its_plain_step(result: Result) -> None:
    """float32's steps were not timed; compile alone is bf16 + compile."""
    made = [record for record in result.records if "bf16" in record.case]
    made += [step("bf16", "fused", seconds=0.055), step("bf16", "compile", "fused", seconds=0.038)]
    found = replace(result, records=made)
    single, several = setting_gains.ladders(found)
    assert (single.name, several.name) == ("bf16", "bf16")
    assert [combination(record.case) for record in single.alone] == ["bf16 + compile", "bf16 + fused"]
    assert [combination(record.case) for record in single.cumulative] == ["bf16 + compile", "bf16 + compile + fused"]
    texts = [finding.text for finding in by_topic(tuning.findings(found))]
    assert texts[0].startswith(
        "mine: bf16 + compile + fused takes 24 % (24 % to 24 %) less time than the plain bf16 step"
    )
    assert texts[1] == "mine, each rung alone on one device: compile (1.25x) helps; fused (0.91x) costs time."
    assert "62 % efficient in bf16, 50 % with bf16 + compile" in texts[2]
    table = tuning.overview(found)
    rows = [dict(zip(table.head, row, strict=True)) for row in table.rows]
    gains = {row["Rungs"].text: row["Gain"].text for row in rows if row["Devices"].text == "1"}
    assert (gains["bf16"], gains["bf16 + compile"]) == ("", "1.25x")


def test_without_the_plain_step_there_is_no_ladder(result: Result) -> None:
    """Which one of several is the plain one, nobody could tell."""
    alone = [record for record in result.records if combination(record.case) in ("bf16", "fused", "graphs")]
    one = [record for record in alone if record.matches(devices=1)]
    assert list(setting_gains.ladders(replace(result, records=one))) == []


def test_if_nothing_helps_that_is_said(result: Result) -> None:
    plain = [record for record in result.records if combination(record.case) in ("float32", "fused")]
    first, *_ = tuning.findings(replace(result, records=plain))
    assert first.text == "mine: no combination of rungs is faster than the plain float32 step (tried: 1)."
    assert first.headline == "mine: no gain"
    (nothing,) = tuning.findings(replace(result, records=[Record.skipped({}, "why", metric="step_time")]))
    assert nothing.text == "Not tuned: why."


def test_epochs_and_what_they_do_to_the_accuracy(result: Result) -> None:
    """Twice the standard error of 10,000 images at 0.91 and 0.92: 2 (0.0819 / 10^4 + 0.0736 / 10^4)^0.5 = 0.008."""
    epochs = []
    for on, seconds, accuracy in (((), 4.0, 0.92), (("bf16", "compile"), 0.8, 0.91)):
        case: Case = {"workload": "resnet18", "devices": 1, **placed(on), "batch_size": 256, "lr": 0.1, "data": "any"}
        epochs += [
            Record(case=case, metric="epoch_time", unit="s", samples=[[seconds] * 10]),
            Record(case=case, metric="accuracy", unit="fraction", samples=[[0.5, accuracy]]),
        ]
    made = replace(result, records=[*result.records, *epochs])
    first = by_topic(tuning.findings(made))[0].text
    assert "An epoch of resnet18 takes 800 ms (800 ms to 800 ms) with bf16 + compile, and 4 s" in first
    assert first.endswith("after 2 epochs the test accuracy is 0.910 instead of 0.920 (give or take 0.008).")
    assert len(tuning.plot([made]).axes) == 4


def test_the_textbooks_float32_stands_beside_ours_in_float32_alone(result: Result) -> None:
    epochs = []
    for rungs, seconds, accuracy in ((("bf16",), 0.8, 0.90), (("tf32",), 1.0, 0.89), ((), 4.0, 0.92)):
        case: Case = {"workload": "resnet18", "devices": 1, **placed(rungs), "batch_size": 256, "lr": 0.1}
        case["data"] = "fashion-mnist"
        epochs += [
            Record(case=case, metric="epoch_time", unit="s", samples=[[seconds] * 10]),
            Record(case=case, metric="accuracy", unit="fraction", samples=[[0.5] * 9 + [accuracy]]),
        ]
    made = replace(result, records=[*result.records, *epochs])
    assert Section.of(made).beside_the_book.texts == [
        ["Time of an epoch", "1 GPU", "D2L, PyTorch, 2023", "12.2 s", "4 s"],
        ["Test accuracy", "1 GPU", "D2L, PyTorch, 2023", "91 %", "92 %"],
    ]
    rounded = [record for record in made.records if record.metric != "epoch_time" or rungs_of(record.case)]
    assert not [row for row in Section.of(replace(made, records=rounded)).beside_the_book.texts if "epoch" in row[0]]
    assert Section.of(replace(made, spec={**SPEC, "train_images": 100})).beside_the_book.texts == []


def test_the_table_has_a_row_for_every_combination(result: Result) -> None:
    table = tuning.overview(result)
    assert list(table.head) == ["Workload", "Devices", "Rungs", "Step", "Gain", "Rate"]
    assert table.texts[3] == [
        "mine",
        "1",
        "bf16 + compile",
        "40 ms",
        "2.50x",
        "1,600 samples/s",
    ]
    assert len(table.rows) == 10
    labels = [number.label for number in tuning.nightly(result)]
    assert labels == ["step of mine, float32", "step of mine, bf16 + compile"]
