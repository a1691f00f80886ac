"""The table of strategies against numbers worked out by hand."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle
from scalecard.analysis import formatting
from scalecard.figures import points
from scalecard.records.axes import Case
from scalecard.records.record import Count, Record, Result, Telemetry
from scalecard.records.strategies import SINGLE
from scalecard.report.section import Section
from scalecard.report.sections import Topic, strategies
from support.builders import out_of_memory

OPERATIONS = {"FLOPs": 1.5e12, "recomputed FLOPs": 0.5e12}
GPU = {"name": "NVIDIA H100 80GB HBM3"}


def step(strategy: str, devices: int, seconds: float, *, scaling: str = "strong", units: int = 8) -> Record:
    case: Case = {"workload": "gpt", "strategy": strategy, "devices": devices, "scaling": scaling}
    launched = Telemetry(rounds_id="r", enqueue=seconds / 4, joules=4.0)
    return Record(
        case={**case, "batch_size": units, "unit": "tokens", "units": units},
        metric="step_time",
        unit="s",
        samples=[[seconds] * 7],
        work=[Count(name="FLOPs", counted=1e12 * units, expected=1e12 * units)],
        telemetry=[launched],
    )


@pytest.fixture
def result(make_result: Callable[..., Result]) -> Result:
    """One device, and 2 devices by two strategies; DDP at the same batch and at twice as much."""
    ddp = step("DDP", 2, 0.3)
    memory = Record(case=ddp.case, metric="peak_memory", unit="B", samples=[[2.0**30]])
    records = [
        *(step("model parallel", 2, 0.5), ddp, step("DDP", 2, 0.6, scaling="weak", units=16)),
        *(step(SINGLE.name, 1, 0.5), memory),
    ]
    made = make_result(records)
    environment = {**made.environment, "gpus": [GPU, GPU], "emulated": False}
    return replace(made, experiment="strategies", environment=environment)


def row(result: Result, strategy: str, scaling: str = "strong") -> dict[str, str]:
    made = strategies.overview(result)
    for cells in made.rows:
        shown = dict(zip(made.head, (cell.text for cell in cells), strict=True))
        if shown["Strategy"] == strategy and shown["Scaling"] in (scaling, ""):
            return dict.fromkeys(["MFU", "Memory", "Launching"], "") | shown
    raise AssertionError(strategy)


def test_rate_gain_and_memory(result: Result) -> None:
    """8 tokens in 0.3 s are 26.7 a second, 0.5/0.3 times as many as on one device; 16 in 0.6 s are as many."""
    ddp = row(result, "DDP")
    assert (ddp["Step"], ddp["Rate"], ddp["Gain"]) == ("300 ms", "26.7 tokens/s", "1.67x")
    assert (ddp["Memory"], ddp["Launching"], ddp["Energy"]) == ("1 GiB", "25 %", "0.5 J/token")
    assert row(result, "DDP", "weak")["Gain"] == "1.67x"
    assert row(result, SINGLE.name)["Gain"] == ""


def test_the_share_of_the_peak_counts_what_the_model_needs(result: Result) -> None:
    """1e12 operations a token: 16e12 a second on one H100, whose vendor says 67e12 in float32; 26.7e12 on two."""
    assert row(result, SINGLE.name)["MFU"] == "23.9 %"
    assert row(result, "DDP")["MFU"] == "19.9 %"


def test_the_share_of_the_peak_is_known_of_a_model_that_one_device_cannot_hold(result: Result) -> None:
    """By the operations of one sample of 4 tokens that were counted without data."""
    records = [record for record in result.records if record.text("strategy", "") != SINGLE.name]
    case: Case = {"workload": "gpt", "unit": "tokens", "units": 4}
    needed = Record(case=case, metric="model_operations", unit="FLOP", samples=[[4e12]])
    assert row(replace(result, records=[*records, needed]), "DDP")["MFU"] == "19.9 %"
    assert row(replace(result, records=records), "DDP")["MFU"] == ""


def test_the_fastest_comes_first_of_its_number_of_devices(result: Result) -> None:
    names = [cells[1].text for cells in strategies.overview(result).rows]
    assert names == [SINGLE.name, "DDP", "model parallel", "DDP"]


def test_cpu_ranks_have_no_time_of_launching_and_no_peak(result: Result) -> None:
    emulated = replace(result, environment={**result.environment, "gpus": [], "emulated": True})
    assert (row(emulated, "DDP")["Launching"], row(emulated, "DDP")["MFU"]) == ("", "")


def test_the_findings_name_the_fastest_and_what_is_slower_than_one_device(make_result: Callable[..., Result]) -> None:
    slow = step("FSDP parameters", 2, 0.9)
    made = make_result([step(SINGLE.name, 1, 0.5), step("DDP", 2, 0.3), slow])
    first, second, _ = strategies.findings(replace(made, experiment="strategies"))
    assert first.text.startswith(
        "gpt: DDP, the fastest on 2 devices, takes 40 % (40 % to 40 %) less time than one device"
    )
    assert second.text == "gpt: with the same batch on 2 devices, FSDP parameters take longer than one device."


def test_without_one_device_the_fastest_is_still_named_and_so_is_the_least_memory(
    make_result: Callable[..., Result],
) -> None:
    ddp, pipeline = step("DDP", 2, 0.3), step("our 1f1b", 2, 0.5)
    memory = [
        Record(case=record.case, metric="peak_memory", unit="B", samples=[[size * 2.0**30]])
        for record, size in ((ddp, 3), (pipeline, 2))
    ]
    made = make_result(
        [
            out_of_memory({**ddp.case, "devices": 1}, metric="step_time"),
            ddp,
            pipeline,
        ]
    )
    first, second = strategies.findings(replace(made, experiment="strategies", records=[*made.records, *memory]))
    assert first.text.startswith("gpt: DDP, the fastest on 2 devices, takes 300 ms")
    assert "one device alone was not timed; our 1f1b takes 67 %" in first.text
    assert second.text == (
        "gpt: on 2 devices our 1f1b needs the least memory, 2 GiB on its fullest device; DDP needs the most, 3 GiB."
    )


def test_columns_that_nothing_fills_are_left_out_with_their_notes(result: Result) -> None:
    emulated = replace(
        result, environment={**result.environment, "gpus": [], "emulated": True}, records=[*result.records[:4]]
    )
    made = strategies.overview(emulated)
    assert list(made.head) == ["Workload", "Strategy", "Devices", "Scaling", "Step", "Gain", "Rate", "Energy"]
    assert made.note == "Gain: the rate over one device's."


def test_over_nodes_the_devices_say_so_and_the_largest_batch_is_of_the_same_place(
    make_result: Callable[..., Result],
) -> None:
    """A largest batch on one node is not that on two."""
    near, far = step("DDP", 4, 0.3), step("DDP", 4, 0.4)
    far = replace(far, case={**far.case, "nodes": 2})
    place: Case = {"workload": "gpt", "strategy": "DDP", "devices": 4}
    largest = Record(case=place, metric="largest_batch", unit="samples", samples=[[96.0]])
    made = strategies.overview(replace(make_result([near, far, largest]), experiment="strategies"))
    cells = [dict(zip(made.head, (cell.text for cell in row), strict=True)) for row in made.rows]
    assert [(row["Devices"], row["Largest batch"]) for row in cells] == [("4", "96"), ("4 on 2 nodes", "")]


@pytest.mark.parametrize(
    ("value", "said"), [(26.66, "26.7"), (999, "999"), (14_683, "14,700"), (1_234_567, "1,230,000")]
)
def test_a_rate_has_three_digits(value: float, said: str) -> None:
    assert formatting.count(value) == said


def in_bf16(result: Result) -> Result:
    """The same by another recipe, in which a third of the operations are computed again."""
    operations = [Count(name=name, counted=each, expected=each) for name, each in OPERATIONS.items()]
    records = [
        replace(
            one, case={**one.case, "precision": "bf16"}, work=[replace(c, counted=8 * c.counted) for c in operations]
        )
        for one in result.records
    ]
    recipe = {"optimizer": "adamw", "precision": "auto", "checkpointing": "blocks"}
    return replace(result, records=records, spec={"workloads": {"gpt": {"recipe": recipe}}})


def test_in_bf16_the_mfu_is_over_its_peak_and_without_what_is_recomputed(result: Result) -> None:
    """26.7 times 1e12 operations a second on two devices: of 66.9 TFLOP/s each in float32, of 989 in bf16."""
    assert (row(result, "DDP")["MFU"], row(in_bf16(result), "DDP")["MFU"]) == ("19.9 %", "1.3 %")


def test_a_panel_names_its_recipe_unless_platforms_differ(result: Result) -> None:
    other, titles = in_bf16(result), []
    for shown in ([other], [result, other]):
        figure = strategies.plot(shown)
        titles.append(" ".join(figure.axes[0].get_title(loc="left").split()))
        plt.close(figure)
    assert titles == ["gpt, AdamW in bf16, blocks recomputed", "gpt, trained by recipes that differ"]


@pytest.mark.parametrize(
    ("sequence", "compiled", "expected"),
    [(8192, {}, ["5,760 tokens/s"]), (8192, {"compile": True}, ["6,670 tokens/s"]), (4096, {}, [])],
)
def test_of_the_published_model_a_gpus_rate_stands_beside_torchtitans(
    sequence: int, compiled: dict[str, bool], expected: list[str], make_result: Callable[..., Result]
) -> None:
    """The faster FSDP2 takes 2.56 s for 16 x 8192 tokens on 8 GPUs; DDP, which is faster, is not what was published."""
    units = 16 * 8192
    times = {"FSDP parameters": 2.56, "FSDP gradients": 3.0, "DDP": 2.0}
    steps = [step(name, 8, seconds, scaling="weak", units=units) for name, seconds in times.items()]
    steps = [replace(one, case={**one.case, "workload": "llama", "precision": "bf16"}) for one in steps]
    block = {"file": "examples/llama.py", "batch_size": 2, "sequence": sequence, "layers": 32, "width": 4096}
    block["recipe"] = {"checkpointing": "selective", **compiled}
    made = make_result(steps, experiment="strategies", spec={"workloads": {"llama": block}})
    gpus = "8 x NVIDIA H100 96 GB HBM2e, 500 W"
    rows = [["Tokens per second and GPU", gpus, "torchtitan", theirs, "6,400 tokens/s"] for theirs in expected]
    assert Section.of(made).beside_the_book.texts == rows
    shown = Section.of(made).published
    assert shown["same_workload"] == bool(expected)
    assert {entry["value"] for entry in shown["entries"]} == {5762, 6667, 0.33, 0.39}


def by_kind(case: Case, sizes: dict[str, float], metric: str = "memory_by_kind") -> list[Record]:
    return [
        Record(case={**case, "kind": kind}, metric=metric, unit="B", samples=[[size]]) for kind, size in sizes.items()
    ]


def test_what_memory_is_for_is_drawn_beside_the_times_and_said(result: Result) -> None:
    """Of 2 GiB 1.5 are activations, of which 1.45 were predicted: 3.4 % less. Of model parallel they are unknown."""
    kinds = {"parameters": 0.1, "gradients": 0.1, "optimizer": 0.2, "activations": 1.5, "rest": 0.1}
    sizes = {kind: size * 2.0**30 for kind, size in kinds.items()}
    predicted = {**{kind: sizes[kind] for kind in list(kinds)[:3]}, "activations": 1.45 * 2.0**30}
    ddp, staged = (step(name, 2, 0.3).case for name in ("DDP", "model parallel"))
    peaks = [
        Record(case=case, metric="peak_memory", unit="B", samples=[[size * 2.0**30]])
        for case, size in ((ddp, 2), (staged, 1))
    ]
    others = [record for record in result.records if record.metric != "peak_memory"]
    found = [*by_kind(ddp, sizes), *by_kind(ddp, predicted, "predicted_memory"), *by_kind(staged, {"parameters": 5.0})]
    known = replace(result, records=[*others, *peaks, *found])
    said = next(finding.text for finding in strategies.findings(known) if finding.topic is Topic.LEAST_MEMORY)
    assert said.endswith("DDP needs the most, 2 GiB, of which 75 % are activations, predicted within 4 %.")

    figure = strategies.plot([known])
    _, memory = figure.axes
    shown = {(s.point.series, s.point.x): s.point.value for s in points.of(figure) if s.unit == "B"}
    assert shown == {**{("DDP", kind): size for kind, size in sizes.items()}, ("model parallel", "parameters"): 5.0}
    ends = {patch.get_x() + patch.get_width() for patch in memory.patches if isinstance(patch, Rectangle)}
    assert max(ends) == pytest.approx(2 * 2.0**30)
    (marks,) = (each for each in memory.collections if isinstance(each, LineCollection))
    assert [line[0][0] for line in marks.get_segments()] == [pytest.approx(1.85 * 2.0**30)]
    plt.close(figure)


def test_without_gpus_times_stand_alone(result: Result) -> None:
    figure = strategies.plot([result])
    assert len(figure.axes) == 1
    plt.close(figure)
